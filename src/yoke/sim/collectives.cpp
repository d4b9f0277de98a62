#include "yoke/sim/collectives.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "yoke/base/error.h"

namespace yoke::sim {
namespace {

using plan::Action;
using plan::Range;
using plan::Step;

class Replay {
 public:
  Replay(const StepLists& lists, std::vector<std::vector<int64_t>>& buffers, const Combine& combine)
      : lists_(lists), buffers_(buffers), combine_(combine), next_(lists.size()), moved_(lists.size()) {}

  std::vector<Moved> run() {
    for (int rank = 0; rank < size(); ++rank) send_round(rank);
    while (one_more_round()) {
    }
    check_done();
    return std::move(moved_);
  }

 private:
  int size() const { return static_cast<int>(lists_.size()); }
  const std::vector<Step>& list(int rank) const { return lists_[static_cast<size_t>(rank)]; }
  size_t& next(int rank) { return next_[static_cast<size_t>(rank)]; }

  size_t end_of_round(int rank) {
    const auto& steps = list(rank);
    size_t end = next(rank);
    while (end < steps.size() && steps[end].round == steps[next(rank)].round) ++end;
    return end;
  }

  int64_t* at(int rank, const Range& range) {
    auto& buffer = buffers_[static_cast<size_t>(rank)];
    int64_t size = static_cast<int64_t>(buffer.size());
    if (range.begin < 0 || range.count < 0 || range.begin > size || range.count > size - range.begin)
      throw ConfigError("replay: rank {} has {} elements, a step takes {} from {}.", rank, size, range.count,
                        range.begin);
    return buffer.data() + range.begin;
  }

  // A round sends values from before the round.
  void send_round(int rank) {
    size_t end = end_of_round(rank);
    for (size_t i = next(rank); i < end; ++i) {
      const Step& step = list(rank)[i];
      if (step.action != Action::kSend) continue;
      const int64_t* data = at(rank, step.range);
      channels_[{rank, step.peer}].emplace_back(data, data + step.range.count);
      moved_[static_cast<size_t>(rank)].elements_sent += step.range.count;
      ++moved_[static_cast<size_t>(rank)].messages_sent;
    }
  }

  bool arrived(int rank, size_t end) {
    std::map<int, size_t> needed;
    for (size_t i = next(rank); i < end; ++i) {
      if (list(rank)[i].action != Action::kSend) ++needed[list(rank)[i].peer];
    }
    return std::all_of(needed.begin(), needed.end(), [&](const auto& entry) {
      return channels_[{entry.first, rank}].size() >= entry.second;
    });
  }

  std::vector<int64_t> message_for(int rank, const Step& step) {
    auto& channel = channels_[{step.peer, rank}];
    std::vector<int64_t> message = std::move(channel.front());
    channel.pop_front();
    if (static_cast<int64_t>(message.size()) != step.range.count)
      throw ConfigError("replay: rank {} expects {} elements from rank {}, but received {}.", rank,
                        step.range.count, step.peer, message.size());
    Moved& moved = moved_[static_cast<size_t>(rank)];
    moved.elements_received += step.range.count;
    if (step.action != Action::kReceive) moved.elements_combined += step.range.count;
    return message;
  }

  void take(int rank, const Step& step) {
    std::vector<int64_t> message = message_for(rank, step);
    int64_t* data = at(rank, step.range);
    if (step.action == Action::kReceive) {
      std::copy(message.begin(), message.end(), data);
    } else if (step.action == Action::kCombine) {
      std::transform(data, data + step.range.count, message.begin(), data, combine_);
    } else {
      merged_[{step.range.begin, step.range.count}][step.peer] = std::move(message);
    }
  }

  // The received values for a range and the local one, in rank order.
  void merge(int rank) {
    for (auto& [where, contributions] : merged_) {
      int64_t* data = at(rank, {where.first, where.second});
      contributions[rank].assign(data, data + where.second);
      auto next = contributions.begin();
      std::copy(next->second.begin(), next->second.end(), data);
      for (++next; next != contributions.end(); ++next)
        std::transform(data, data + where.second, next->second.begin(), data, combine_);
    }
    merged_.clear();
  }

  bool one_more_round() {
    bool progress = false;
    for (int rank = 0; rank < size(); ++rank) {
      size_t end = end_of_round(rank);
      if (end == next(rank) || !arrived(rank, end)) continue;
      for (size_t i = next(rank); i < end; ++i) {
        if (list(rank)[i].action != Action::kSend) take(rank, list(rank)[i]);
      }
      merge(rank);
      next(rank) = end;
      send_round(rank);
      progress = true;
    }
    return progress;
  }

  void check_done() {
    for (int rank = 0; rank < size(); ++rank) {
      if (next(rank) < list(rank).size())
        throw ConfigError("replay: rank {} deadlocks in round {}.", rank, list(rank)[next(rank)].round);
    }
    for (const auto& [channel, messages] : channels_) {
      if (!messages.empty())
        throw ConfigError("replay: {} messages from rank {} to rank {} are never received.", messages.size(),
                          channel.first, channel.second);
    }
  }

  const StepLists& lists_;
  std::vector<std::vector<int64_t>>& buffers_;
  const Combine& combine_;
  std::vector<size_t> next_;
  std::vector<Moved> moved_;
  std::map<std::pair<int, int>, std::deque<std::vector<int64_t>>> channels_;
  // For the current round: begin and count of a range, then by rank.
  std::map<std::pair<int64_t, int64_t>, std::map<int, std::vector<int64_t>>> merged_;
};

}  // namespace

StepLists steps_of_all(plan::CollectiveRequest request) {
  StepLists lists;
  for (request.rank = 0; request.rank < request.size; ++request.rank)
    lists.push_back(plan::collective_steps(request));
  return lists;
}

std::vector<Moved> replay(const StepLists& lists, std::vector<std::vector<int64_t>>& buffers,
                          const Combine& combine) {
  if (lists.size() != buffers.size())
    throw ConfigError("replay: {} lists for {} buffers.", lists.size(), buffers.size());
  return Replay(lists, buffers, combine).run();
}

double price_rounds(const StepLists& lists, int64_t element_bytes, const plan::LinkCost& cost) {
  struct Load {
    double out = 0, in = 0, combining = 0;
  };
  std::vector<double> rounds;
  for (const auto& steps : lists) {
    std::vector<Load> loads;
    for (const Step& step : steps) {
      if (loads.size() <= static_cast<size_t>(step.round)) loads.resize(static_cast<size_t>(step.round) + 1);
      Load& load = loads[static_cast<size_t>(step.round)];
      double bytes = static_cast<double>(step.range.count * element_bytes);
      (step.action == Action::kSend ? load.out : load.in) += cost.alpha + bytes * cost.beta;
      if (step.action == Action::kCombine || step.action == Action::kMerge)
        load.combining += bytes * cost.gamma;
    }
    rounds.resize(std::max(rounds.size(), loads.size()));
    for (size_t t = 0; t < loads.size(); ++t)
      rounds[t] = std::max(rounds[t], std::max(loads[t].out, loads[t].in) + loads[t].combining);
  }
  double seconds = 0;
  for (double round : rounds) seconds += round;
  return seconds;
}

}  // namespace yoke::sim
