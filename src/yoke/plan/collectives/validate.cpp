#include <map>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/plan/collectives/steps.h"

namespace yoke::plan {
namespace {

using Channel = std::pair<int, int>;  // from, to
using Sizes = std::map<Channel, std::vector<int64_t>>;

void check_list(const std::vector<Step>& steps, int rank, int size) {
  int round = 0;
  for (const Step& step : steps) {
    if (step.peer < 0 || step.peer >= size || step.peer == rank)
      throw ConfigError("steps of rank {}: peer {} among {} ranks.", rank, step.peer, size);
    if (step.round < round)
      throw ConfigError("steps of rank {}: round {} after round {}.", rank, step.round, round);
    if (step.range.begin < 0 || step.range.count < 0)
      throw ConfigError("steps of rank {}: range of {} elements from {}.", rank, step.range.count,
                        step.range.begin);
    round = step.round;
  }
}

void compare(const Channel& channel, const std::vector<int64_t>& sent, const std::vector<int64_t>& received) {
  auto [from, to] = channel;
  if (sent.size() != received.size())
    throw ConfigError("steps: rank {} sends {} messages to rank {}, which receives {}.", from, sent.size(),
                      to, received.size());
  for (size_t i = 0; i < sent.size(); ++i) {
    if (sent[i] != received[i])
      throw ConfigError("steps: message {} from rank {} to rank {} has {} elements where {} are expected.", i,
                        from, to, sent[i], received[i]);
  }
}

}  // namespace

void validate_steps(const std::vector<std::vector<Step>>& lists) {
  int size = static_cast<int>(lists.size());
  Sizes sent, received;
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<Step>& steps = lists[static_cast<size_t>(rank)];
    check_list(steps, rank, size);
    for (const Step& step : steps) {
      if (step.action == Action::kSend) {
        sent[{rank, step.peer}].push_back(step.range.count);
      } else {
        received[{step.peer, rank}].push_back(step.range.count);
      }
    }
  }
  for (const auto& [channel, sizes] : sent) compare(channel, sizes, received[channel]);
  for (const auto& [channel, sizes] : received) compare(channel, sent[channel], sizes);
}

}  // namespace yoke::plan
