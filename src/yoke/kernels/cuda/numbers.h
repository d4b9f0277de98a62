// Element types of the CUDA kernels.
#pragma once

#include <optional>

namespace yoke::kernels {

enum class CudaNumber { kFloat, kBf16, kHalf };

// Empty for types the kernels do not support. `ScalarType` is c10::ScalarType, which this folder does not
// include.
template <class ScalarType>
std::optional<CudaNumber> cuda_number(ScalarType type) {
  if (type == ScalarType::Float) return CudaNumber::kFloat;
  if (type == ScalarType::BFloat16) return CudaNumber::kBf16;
  if (type == ScalarType::Half) return CudaNumber::kHalf;
  return std::nullopt;
}

}  // namespace yoke::kernels
