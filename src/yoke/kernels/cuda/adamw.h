// AdamW for many parameters in few launches on CUDA: gradients in their own type, fp32 masters, narrow
// weights.
#pragma once

#include <cstdint>
#include <vector>

#include "yoke/kernels/cuda/numbers.h"

namespace yoke::kernels {

struct CudaAdamWParameter {
  const void* gradient = nullptr;
  void* weight = nullptr;  // narrow copy of the master, written too; nullptr: none
  float* master = nullptr;
  float* mean = nullptr;
  float* mean_square = nullptr;
  const float* step = nullptr;  // number of updates including this one
  int64_t count = 0;
};

struct CudaAdamW {
  CudaNumber type = CudaNumber::kFloat;  // of gradients and weights
  const float* lr = nullptr;             // on the device, read when the kernel runs
  const float* divisor = nullptr;        // of the gradients, on the device; nullptr: 1
  const float* skip = nullptr;           // on the device: 1: no update; nullptr: 0
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  void* stream = nullptr;
};

// torch.optim.AdamW's update. Asynchronous; moves the minimum number of bytes: 28 per bf16 parameter.
void adamw(const CudaAdamW& rule, const std::vector<CudaAdamWParameter>& parameters);

}  // namespace yoke::kernels
