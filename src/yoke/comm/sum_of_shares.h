// fp16 means for algorithms that round between additions.
#pragma once

#include <cstddef>
#include <vector>

#include "yoke/comm/operation.h"

namespace yoke::comm {

// Whether a sum that is rounded between additions may overflow (above 65504) although the mean does not.
bool overflows_as_sum(const Operation& operation);

// Rewrites the mean as a sum of contributions that each rank divides by `size` first, as NCCL does. Values
// below 1e-7 lose bits. Divides in place, or in `scratch` if the input must not change; `scratch` must
// outlive the result. Requires overflows_as_sum().
Operation sum_of_shares(Operation operation, int size, std::vector<std::byte>& scratch);

}  // namespace yoke::comm
