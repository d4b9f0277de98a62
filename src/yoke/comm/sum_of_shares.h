// Means of fp16 where contributions are not all added up in one place.
#pragma once

#include <cstddef>
#include <vector>

#include "yoke/comm/operation.h"

namespace yoke::comm {

// Whether a sum that is rounded between additions may overflow (above 65504) although the mean does not.
bool overflows_as_sum(const Operation& operation);

// The same mean as a sum, of contributions that each rank divides by `size` first: what NCCL does. Numbers
// below 1e-7 lose bits by it. Divides in place, or in `scratch` where the input must stay as it is; that must
// live as long as the result. Requires overflows_as_sum().
Operation sum_of_shares(Operation operation, int size, std::vector<std::byte>& scratch);

}  // namespace yoke::comm
