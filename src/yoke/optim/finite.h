// Finding the first parameter whose gradient is not a number.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "yoke/optim/optimizer.h"

namespace yoke::optim {

// Name of the first parameter whose gradient holds an inf or NaN; nothing where all are finite or absent.
// Waits for the device once.
std::optional<std::string> first_non_finite_gradient(const std::vector<NamedTensor>& parameters);

}  // namespace yoke::optim
