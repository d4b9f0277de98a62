// Finding the first tensor that holds something that is not a number.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "yoke/optim/optimizer.h"

namespace yoke::optim {

// Name of the first parameter whose gradient holds an inf or NaN; nothing where all are finite or absent.
// Waits for the device once.
std::optional<std::string> first_non_finite_gradient(const std::vector<NamedTensor>& parameters);

// The same for the tensors themselves; those of whole numbers are finite.
std::optional<std::string> first_non_finite(const std::vector<NamedTensor>& tensors);

}  // namespace yoke::optim
