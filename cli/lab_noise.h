// The critical batch size that training runs show: steps to a loss against the batch size.
#pragma once

#include <optional>
#include <vector>

namespace yoke::cli {

struct StepsToLoss {
  double batch = 0, steps = 0;
};

struct NoiseFit {
  double least_steps = 0;     // S_min: with an endless batch
  double critical_batch = 0;  // in samples
};

// S(B) = S_min (1 + critical / B) of McCandlish et al. 2018, with the least squares of log S. Empty: fewer
// than two batch sizes, or steps that do not fall with the batch. Requires positive values.
std::optional<NoiseFit> fit_noise(const std::vector<StepsToLoss>& runs);

}  // namespace yoke::cli
