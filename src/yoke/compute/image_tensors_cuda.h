// Shared by the CUDA image layers.
#pragma once

#include <c10/cuda/CUDAStream.h>
#include <torch/types.h>

#include <optional>

#include "yoke/kernels/cuda/numbers.h"

namespace yoke::compute::cuda {

inline std::optional<kernels::CudaNumber> number_of(const torch::Tensor& x) {
  return kernels::cuda_number(x.scalar_type());
}

// Channels-last pixels that can be read 16 bytes at a time.
inline bool is_pixels(const torch::Tensor& x) {
  return x.defined() && x.is_cuda() && x.dim() == 4 && x.numel() > 0 && number_of(x) && !x.is_neg() &&
         x.is_contiguous(at::MemoryFormat::ChannelsLast) && x.size(1) % 8 == 0 &&
         reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

inline torch::Tensor as_pixels(const torch::Tensor& x) {
  torch::Tensor pixels = x.contiguous(at::MemoryFormat::ChannelsLast);
  return reinterpret_cast<uintptr_t>(pixels.const_data_ptr()) % 16 == 0
             ? pixels
             : pixels.clone(at::MemoryFormat::ChannelsLast);
}

// Numbers from one pixel to the next of channels-last pixels, or of some of their channels (a part of a
// concatenation). 0 for other layouts, and if they cannot be read 16 bytes at a time.
inline int64_t pixel_pitch(const torch::Tensor& x) {
  if (x.dim() != 4 || x.stride(1) != 1 || x.is_neg()) return 0;
  const int64_t pitch = x.stride(3);
  const bool pixels = pitch >= x.size(1) && pitch % 8 == 0 && x.stride(2) == x.size(3) * pitch &&
                      x.stride(0) == x.size(2) * x.size(3) * pitch;
  return pixels && reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0 ? pitch : 0;
}

// Whether nobody else reads this gradient, so that its memory may be used for the next one.
inline bool is_last_owner(const torch::Tensor& gradient) {
  return gradient.use_count() == 1 && gradient.storage().use_count() == 1;
}

inline torch::Tensor scratch(int64_t floats, const torch::Tensor& like) {
  return at::empty({floats}, like.options().dtype(torch::kFloat).memory_format(at::MemoryFormat::Contiguous));
}

inline void* stream_of(const torch::Tensor& x) {
  return c10::cuda::getCurrentCUDAStream(x.device().index()).stream();
}

}  // namespace yoke::compute::cuda
