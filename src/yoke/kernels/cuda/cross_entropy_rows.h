// Cross entropy with whole rows in shared memory, for GPUs with bulk copies (compute capability 9.0 or
// higher).
#pragma once

#include "yoke/kernels/cuda/cross_entropy.h"

namespace yoke::kernels {

// Whether this device has bulk copies, and shared memory for rows of `stride` numbers of two bytes.
bool can_keep_rows(int64_t stride);

// Like cross_entropy(). Requires: can_keep_rows(stride).
void cross_entropy_of_kept_rows(const CudaCrossEntropy& in);

}  // namespace yoke::kernels
