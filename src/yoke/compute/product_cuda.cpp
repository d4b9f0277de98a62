#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAGuard.h>

#include <optional>

#include "yoke/compute/determinism.h"
#include "yoke/compute/image_tensors_cuda.h"
#include "yoke/compute/lt_matmul_cuda.h"
#include "yoke/compute/product.h"

namespace yoke::compute {
namespace {

using cuda::Epilogue;
using cuda::LtProduct;
using torch::Tensor;

bool is_narrow(const Tensor& x) {
  return x.scalar_type() == torch::kBFloat16 || x.scalar_type() == torch::kHalf;
}

bool aligned(const Tensor& x) {
  return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

bool alike(const Tensor& x, const Tensor& other) {
  return other.is_cuda() && other.device() == x.device() && other.scalar_type() == x.scalar_type() &&
         !other.is_neg() && aligned(other);
}

// False for a dense matrix, true for the transposed view of one; otherwise empty.
std::optional<bool> is_transposed(const Tensor& x) {
  if (x.dim() != 2 || x.size(0) % 8 != 0 || x.size(1) % 8 != 0 || x.numel() == 0) return std::nullopt;
  if (x.stride(1) == 1 && x.stride(0) == x.size(1)) return false;
  if (x.stride(0) == 1 && x.stride(1) == x.size(0)) return true;
  return std::nullopt;
}

// Without output, workspace or epilogue.
std::optional<LtProduct> lt_product_of(const Tensor& left, const Tensor& right) {
  if (!left.is_cuda() || !is_narrow(left) || !alike(left, left) || !alike(left, right) || is_deterministic())
    return std::nullopt;
  std::optional<bool> left_transposed = is_transposed(left), right_transposed = is_transposed(right);
  if (!left_transposed || !right_transposed) return std::nullopt;
  LtProduct p;
  p.type = *cuda::number_of(left);
  p.rows = left.size(0);
  p.columns = right.size(1);
  p.inner = left.size(1);
  p.left_transposed = *left_transposed;
  p.right_transposed = *right_transposed;
  p.left = left.const_data_ptr();
  p.right = right.const_data_ptr();
  return p;
}

Tensor matrix(const LtProduct& p, const Tensor& like) {
  return at::empty({p.rows, p.columns}, like.options().memory_format(at::MemoryFormat::Contiguous));
}

void* handle() {
  return at::cuda::getCurrentCUDABlasLtHandle();
}

void multiply(const LtProduct& p, const Tensor& like) {
  Tensor workspace =
      at::empty({static_cast<int64_t>(cuda::kLtWorkspace)}, like.options().dtype(torch::kByte));
  cuda::lt_multiply(p, handle(), workspace.data_ptr(), /*search=*/true, cuda::stream_of(like));
}

bool fits(const LtProduct& p, const Tensor& like, const Tensor& bias) {
  return alike(like, bias) && bias.is_contiguous() && bias.numel() == p.columns;
}

}  // namespace

Tensor product(const Tensor& left, const Tensor& right) {
  std::optional<LtProduct> p = lt_product_of(left, right);
  if (!p) return at::mm(left, right);
  c10::cuda::CUDAGuard guard(left.device());
  Tensor out = matrix(*p, left);
  p->out = out.data_ptr();
  if (!cuda::lt_can_multiply(*p, handle())) return at::mm(left, right);
  multiply(*p, left);
  return out;
}

Tensor product_plus(const Tensor& left, const Tensor& right, const Tensor& bias, const Tensor& added) {
  auto plain = [&] {
    Tensor sum = at::addmm(bias, left, right);
    return added.defined() ? sum.add_(added) : sum;
  };
  std::optional<LtProduct> p = lt_product_of(left, right);
  bool usable = p && fits(*p, left, bias) &&
                (!added.defined() || (alike(left, added) && added.is_contiguous() &&
                                      added.sizes() == at::IntArrayRef({p->rows, p->columns})));
  if (!usable) return plain();
  c10::cuda::CUDAGuard guard(left.device());
  Tensor out = matrix(*p, left);
  p->out = out.data_ptr();
  p->epilogue = Epilogue::kBias;
  p->bias = bias.const_data_ptr();
  if (added.defined()) p->added = added.const_data_ptr();
  if (!cuda::lt_can_multiply(*p, handle())) return plain();
  multiply(*p, left);
  return out;
}

GeluOfProduct product_gelu(const Tensor& left, const Tensor& right, const Tensor& bias) {
  auto plain = [&]() -> GeluOfProduct {
    Tensor z = product_plus(left, right, bias, {});
    return {z, at::gelu(z, "tanh")};
  };
  std::optional<LtProduct> p = lt_product_of(left, right);
  if (!p || !fits(*p, left, bias)) return plain();
  c10::cuda::CUDAGuard guard(left.device());
  GeluOfProduct out{matrix(*p, left), matrix(*p, left)};
  p->out = out.y.data_ptr();
  p->z = out.z.data_ptr();
  p->epilogue = Epilogue::kBiasGelu;
  p->bias = bias.const_data_ptr();
  if (!cuda::lt_can_multiply(*p, handle())) return plain();
  multiply(*p, left);
  return out;
}

Tensor product_gelu_slope(const Tensor& left, const Tensor& right, const Tensor& z) {
  std::optional<LtProduct> p = lt_product_of(left, right);
  if (!p || !alike(left, z) || !z.is_contiguous() || z.sizes() != at::IntArrayRef({p->rows, p->columns}))
    return {};
  c10::cuda::CUDAGuard guard(left.device());
  Tensor out = matrix(*p, left);
  p->out = out.data_ptr();
  p->z = z.data_ptr();
  p->epilogue = Epilogue::kGeluSlope;
  if (!cuda::lt_can_multiply(*p, handle())) return {};
  multiply(*p, left);
  return out;
}

}  // namespace yoke::compute
