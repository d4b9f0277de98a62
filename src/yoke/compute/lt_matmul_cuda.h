// cuBLASLt matrix products with fused epilogues: bias, GELU, a residual.
//
// Gradients of biases are not fused: on an H200 a product with DGELU_BGRAD takes four times as long as
// without, one with BGRADA longer than a separate kernel (docs/performance.md).
//
// Plain memory on the current device, without LibTorch. The first call with a shape times the algorithms
// proposed by cuBLASLt and keeps the fastest; with `search` off, or during stream capture, it uses the first
// proposal, which is the same in every run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "yoke/kernels/cuda/numbers.h"

namespace yoke::compute::cuda {

enum class Epilogue {
  kNone,
  kBias,       // + bias [columns]
  kBiasGelu,   // z = product + bias; out = GELU(z), tanh approximation
  kGeluSlope,  // out = product * the derivative of that GELU at z
};

// out [rows, columns] = left [rows, inner] * right [inner, columns] (+ added), all row-major and dense; a
// transposed operand is stored [inner, rows] or [columns, inner]. Products are summed in fp32.
struct LtProduct {
  kernels::CudaNumber type = kernels::CudaNumber::kBf16;  // of everything
  int64_t rows = 0, columns = 0, inner = 0;
  bool left_transposed = false, right_transposed = false;
  Epilogue epilogue = Epilogue::kNone;
  const void* left = nullptr;
  const void* right = nullptr;
  void* out = nullptr;
  const void* added = nullptr;  // [rows, columns], not `out`; or nullptr
  const void* bias = nullptr;
  void* z = nullptr;  // [rows, columns], for kBiasGelu; read for kGeluSlope
};

// Bytes of scratch memory for a product, 256-byte aligned.
inline constexpr size_t kLtWorkspace = 32 << 20;

// Requires: pointers 16-byte aligned, sizes multiples of 8, lt_can_multiply(). `handle` is a
// cublasLtHandle_t, `stream` a cudaStream_t. Throws std::runtime_error if cuBLASLt fails. Thread-safe.
void lt_multiply(const LtProduct& product, void* handle, void* workspace, bool search, void* stream);

// Whether cuBLASLt has an algorithm for it. Caches the answer.
bool lt_can_multiply(const LtProduct& product, void* handle);

}  // namespace yoke::compute::cuda
