// Cross entropy with whole rows in shared memory, for GPUs with bulk copies (compute capability 9.0 or
// higher).
#pragma once

#include <cstdint>

namespace yoke::kernels {

// Whether this device has bulk copies, and shared memory for rows of `stride` bf16 values.
bool can_keep_rows(int64_t stride);

// Like cross_entropy_bf16(). Requires: can_keep_rows(stride).
void cross_entropy_of_kept_rows(void* logits, const int64_t* target, float* loss, int64_t rows,
                                int64_t classes, int64_t stride, float scale, void* stream);

}  // namespace yoke::kernels
