// The number formats of the CUDA kernels, and 16-byte vectors of them.
#pragma once

namespace yoke::kernels {

enum class CudaNumber { kFloat, kBf16, kHalf };

}  // namespace yoke::kernels
