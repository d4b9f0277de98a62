// Softmax cross entropy and its gradient in one pass over the logits, on CUDA.
#pragma once

#include <cstdint>

namespace yoke::kernels {

// For each of `rows` rows of bf16 logits (`stride` elements apart, a multiple of 8, 16-byte aligned), of
// which the first `classes` count: writes the loss to loss[row] and replaces the logits by (softmax -
// one_hot(target[row])) * scale, with zeros from `classes` to `stride`. A target outside 0..classes-1 makes
// the loss NaN. Requires stride <= 65536. `stream` is a cudaStream_t.
void cross_entropy_bf16(void* logits, const int64_t* target, float* loss, int64_t rows, int64_t classes,
                        int64_t stride, float scale, void* stream);

// Multiplies `count` bf16 values (a multiple of 8) by *factor, a float on the device; no memory access if it
// is 1.
void scale_unless_one_bf16(void* data, int64_t count, const float* factor, void* stream);

}  // namespace yoke::kernels
