// Finds the first tensor with non-finite values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "yoke/optim/optimizer.h"

namespace yoke::optim {

// Name of the first parameter whose gradient has an inf or NaN; empty if all are finite or absent.
// Synchronises with the device once.
std::optional<std::string> first_non_finite_gradient(const std::vector<NamedTensor>& parameters);

// The same for the tensors themselves; integer tensors are finite.
std::optional<std::string> first_non_finite(const std::vector<NamedTensor>& tensors);

}  // namespace yoke::optim
