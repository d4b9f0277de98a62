#include "yoke/engine/speed_split.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/base/text.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/metrics/quantiles.h"

namespace yoke::engine {
namespace {

constexpr int64_t kWarmUp = 3;  // excluded steps
constexpr int64_t kFirstLook = 8;
constexpr int64_t kLookEvery = 50;
constexpr double kWorthIt = 0.03;

}  // namespace

std::vector<double> parse_split(const std::string& text, int replicas) {
  if (text == "equal" || text == "speed") return {};
  std::vector<double> shares;
  for (const std::string& part : split(text, ':')) {
    double value = 0;
    auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    // Clamped, so that sums and quotients are finite.
    if (error != std::errc() || end != part.data() + part.size() || !(value >= 1e-9 && value <= 1e9))
      throw ConfigError(
          "parallel.split = \"{}\": expected equal, speed, or a share from 1e-9 to 1e9 for each replica: "
          "8:4.",
          text);
    shares.push_back(value);
  }
  if (static_cast<int>(shares.size()) != replicas)
    throw ConfigError("parallel.split = \"{}\" has {} shares for {} replicas.", text, shares.size(),
                      replicas);
  return shares;
}

SpeedSplit::SpeedSplit(comm::Communicator& comm, torch::Device device, int64_t part, int64_t parts,
                       std::function<void(const std::vector<double>&)> apply)
    : comm_(comm),
      device_(device),
      part_(part),
      apply_(std::move(apply)),
      shares_(static_cast<size_t>(parts), 1.0 / static_cast<double>(parts)),
      next_look_(kFirstLook) {}

void SpeedSplit::add(int64_t samples, double seconds) {
  ++steps_;
  if (steps_ > kWarmUp)
    seconds_per_sample_.push_back(seconds / static_cast<double>(std::max<int64_t>(1, samples)));
  if (steps_ < next_look_) return;
  next_look_ = steps_ + kLookEvery;
  look();
}

void SpeedSplit::look() {
  double own = 1.0 / std::max(1e-12, metrics::median(seconds_per_sample_));
  torch::Tensor told = torch::tensor({static_cast<double>(part_), own}, torch::kFloat64).view({1, 2});
  torch::Tensor all_ranks = comm::all_gather(comm_, told.to(device_), "speeds").cpu();
  std::vector<double> speeds(shares_.size(), std::numeric_limits<double>::max());
  for (const double *one = all_ranks.const_data_ptr<double>(), *end = one + all_ranks.numel(); one < end;
       one += 2) {
    double& replica = speeds[static_cast<size_t>(one[0])];
    replica = std::min(replica, one[1]);
  }
  seconds_per_sample_.clear();
  double all = 0;
  for (double speed : speeds) all += speed;
  bool worth = false;
  for (size_t i = 0; i < speeds.size(); ++i) {
    speeds[i] /= all;
    worth = worth || std::abs(speeds[i] - shares_[i]) > kWorthIt * shares_[i];
  }
  if (!worth) return;
  shares_ = speeds;
  if (comm_.rank() == 0) {
    std::vector<std::string> parts;
    for (double share : shares_) parts.push_back(fmt::format("{:.1f} %", 100 * share));
    log::info("parallel.split = speed: the batch is split {} from step {} on", join(parts), steps_ + 1);
  }
  apply_(shares_);
}

}  // namespace yoke::engine
