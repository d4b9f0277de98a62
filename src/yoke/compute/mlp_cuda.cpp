#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <map>
#include <mutex>

#include "yoke/compute/fast_path.h"
#include "yoke/compute/image_tensors_cuda.h"
#include "yoke/compute/kept_sums.h"
#include "yoke/compute/product.h"
#include "yoke/compute/token_kernels.h"
#include "yoke/kernels/cuda/activation.h"

namespace yoke::compute::cuda {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The gradient before GELU, and its column sums, which are that of the bias.
struct BeforeGelu {
  Tensor grad, sums;
};

BeforeGelu apart(const Tensor& grad_y, const Tensor& weight, const Tensor& z) {
  Tensor of_gelu = product(grad_y, weight);
  kernels::CudaActivation in{*number_of(z), z.size(0), z.size(1), stream_of(z)};
  BeforeGelu out{at::empty_like(z), at::empty({z.size(1)}, z.options())};
  kernels::gelu_backward(in, of_gelu.const_data_ptr(), z.const_data_ptr(), out.grad.data_ptr(),
                         out.sums.data_ptr(),
                         scratch(kernels::activation_workspace(in), z).data_ptr<float>());
  return out;
}

BeforeGelu together(const Tensor& grad_y, const Tensor& weight, const Tensor& z) {
  Tensor grad = product_gelu_slope(grad_y, weight, z);
  return {grad, grad.defined() ? sum_rows(grad) : Tensor()};
}

float milliseconds(const std::function<void()>& work) {
  at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
  constexpr int kTimes = 4;
  begin.record();
  for (int i = 0; i < kTimes; ++i) work();
  end.record();
  end.synchronize();
  return begin.elapsed_time(end);
}

// Whether `a` is faster than `b`, in turns, so that a change of the clock rate affects both.
bool is_faster(const std::function<void()>& a, const std::function<void()>& b) {
  constexpr int kRounds = 3;
  float of_a = 0, of_b = 0;
  for (int round = 0; round <= kRounds; ++round) {
    const float spent_a = milliseconds(a), spent_b = milliseconds(b);
    if (round == 0) continue;
    of_a += spent_a;
    of_b += spent_b;
  }
  return of_a < of_b;
}

bool in_capture() {
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

// Measured once for every shape, outside of captures.
bool pays_together(const Tensor& grad_y, const Tensor& weight, const Tensor& z) {
  static std::mutex mutex;
  static std::map<std::vector<int64_t>, bool> known;
  const std::vector<int64_t> key = {z.device().index(), static_cast<int64_t>(z.scalar_type()), z.size(0),
                                    z.size(1), grad_y.size(1)};
  {
    std::lock_guard lock(mutex);
    if (auto found = known.find(key); found != known.end()) return found->second;
  }
  if (in_capture()) return false;
  const bool possible = together(grad_y, weight, z).grad.defined();
  const bool pays =
      possible && is_faster([&] { together(grad_y, weight, z); }, [&] { apart(grad_y, weight, z); });
  std::lock_guard lock(mutex);
  return known.emplace(key, pays).first->second;
}

struct Mlp : torch::autograd::Function<Mlp> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& up, const Tensor& up_bias,
                        const Tensor& down, const Tensor& down_bias, const Tensor& added) {
    c10::cuda::CUDAGuard guard(x.device());
    GeluOfProduct inner = product_gelu(x.view({-1, x.size(-1)}), up, up_bias);
    ctx->save_for_backward({x, up, down, inner.z, inner.y});
    return product_plus(inner.y, down, down_bias, added.view({-1, down.size(1)})).view(added.sizes());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    require_first_derivative("mlp");
    variable_list saved = ctx->get_saved_variables();
    const Tensor &up = saved[1], &down = saved[2], &z = saved[3], &y = saved[4];
    c10::cuda::CUDAGuard guard(z.device());
    Tensor x = saved[0].view({-1, up.size(0)});
    Tensor grad = grads[0].reshape({-1, down.size(1)});
    if (reinterpret_cast<uintptr_t>(grad.const_data_ptr()) % 16 != 0) grad = grad.clone();
    Tensor of_down_bias = kept_sums(grads[0]);
    if (!of_down_bias.defined()) of_down_bias = sum_rows(grad);
    BeforeGelu before =
        pays_together(grad, down.t(), z) ? together(grad, down.t(), z) : apart(grad, down.t(), z);
    return {product(before.grad, up.t()).view(saved[0].sizes()),
            product(x.t(), before.grad),
            before.sums,
            product(y.t(), grad),
            of_down_bias,
            grads[0]};
  }
};

}  // namespace

bool can_mlp(const Tensor& x, const MlpWeights& w, const Tensor& added) {
  if (!can_affine_gelu(x, w.up, w.up_bias) || !can_affine_gelu(added, w.down, w.down_bias)) return false;
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = w.down.size(1);
  return w.down.size(0) == w.up.size(1) && added.scalar_type() == x.scalar_type() &&
         added.sizes() == at::IntArrayRef(shape);
}

Tensor mlp(const Tensor& x, const MlpWeights& w, const Tensor& added) {
  return Mlp::apply(x, w.up, w.up_bias, w.down, w.down_bias, added);
}

}  // namespace yoke::compute::cuda
