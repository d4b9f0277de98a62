// Softmax cross entropy and its gradient in one pass over the logits, on CUDA.
#pragma once

#include <cstdint>

#include "yoke/kernels/cuda/numbers.h"

namespace yoke::kernels {

// `rows` rows of logits, `stride` elements apart (a multiple of 8, at most 65536; 16-byte
// aligned), of which the first `classes` count.
struct CudaCrossEntropy {
  CudaNumber type = CudaNumber::kBf16;
  void* logits = nullptr;
  const int64_t* target = nullptr;
  float* loss = nullptr;  // of each row
  int64_t rows = 0, classes = 0, stride = 0;
  float scale = 1;                // of the gradient
  const float* factor = nullptr;  // of the gradient too, on the device, read when the kernel runs; nullptr: 1
  void* stream = nullptr;         // cudaStream_t
};

// Writes the losses and replaces the logits by (softmax - one_hot(target)) * scale * factor, with zeros from
// `classes` to `stride`. A target outside 0..classes-1 makes the loss NaN.
void cross_entropy(const CudaCrossEntropy& in);

// Multiplies `count` values (a multiple of 8) by *factor, a float on the device; no memory
// access if it is 1.
void scale_unless_one(CudaNumber type, void* data, int64_t count, const float* factor, void* stream);

}  // namespace yoke::kernels
