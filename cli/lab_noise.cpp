#include "cli/lab_noise.h"

#include <algorithm>
#include <cmath>

namespace yoke::cli {
namespace {

constexpr double kBeyond = 1000;  // times the batch sizes: where the search ends
constexpr double kRatio = 1.01;   // between two candidates

// Of log S for one critical batch size, with the best S_min.
struct Residual {
  double square = 0, log_least = 0;
};

Residual residual_of(const std::vector<StepsToLoss>& runs, double critical) {
  Residual out;
  std::vector<double> logs;
  for (const StepsToLoss& run : runs) logs.push_back(std::log(run.steps / (1 + critical / run.batch)));
  for (double log : logs) out.log_least += log / static_cast<double>(logs.size());
  for (double log : logs) out.square += (log - out.log_least) * (log - out.log_least);
  return out;
}

}  // namespace

std::optional<NoiseFit> fit_noise(const std::vector<StepsToLoss>& runs) {
  if (runs.empty()) return std::nullopt;
  const auto [small, large] = std::ranges::minmax_element(runs, {}, &StepsToLoss::batch);
  if (small->batch == large->batch) return std::nullopt;
  const double from = small->batch / kBeyond, to = large->batch * kBeyond;
  double best = from;
  Residual least = residual_of(runs, from);
  for (double critical = from * kRatio; critical < to; critical *= kRatio)
    if (const Residual one = residual_of(runs, critical); one.square < least.square) {
      least = one;
      best = critical;
    }
  if (best == from || best * kRatio >= to) return std::nullopt;
  return NoiseFit{std::exp(least.log_least), best};
}

}  // namespace yoke::cli
