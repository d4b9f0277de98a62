#include "yoke/engine/speed_split.h"

#include <charconv>
#include <cmath>

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/base/text.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/metrics/quantiles.h"

namespace yoke::engine {
namespace {

constexpr int64_t kWarmUp = 3;  // steps that measure something else
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
    if (error != std::errc() || end != part.data() + part.size() || !(value > 0) || !std::isfinite(value))
      throw ConfigError(
          "parallel.split = \"{}\": expected equal, speed, or a share above 0 for each replica: 8:4.", text);
    shares.push_back(value);
  }
  if (static_cast<int>(shares.size()) != replicas)
    throw ConfigError("parallel.split = \"{}\" has {} shares for {} replicas.", text, shares.size(),
                      replicas);
  return shares;
}

SpeedSplit::SpeedSplit(comm::Communicator& comm, torch::Device device,
                       std::function<void(const std::vector<double>&)> apply)
    : comm_(comm),
      device_(device),
      apply_(std::move(apply)),
      shares_(static_cast<size_t>(comm.size()), 1.0 / comm.size()),
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
  torch::Tensor all_speeds =
      comm::all_gather(comm_, torch::tensor({own}, torch::kFloat64).to(device_), "speeds").cpu();
  std::vector<double> speeds(all_speeds.const_data_ptr<double>(),
                             all_speeds.const_data_ptr<double>() + all_speeds.numel());
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
    log::info("parallel.split = speed: parts of the batch are {} from step {} on", join(parts), steps_ + 1);
  }
  apply_(shares_);
}

}  // namespace yoke::engine
