#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/custom_function.h>

#include "yoke/base/error.h"
#include "yoke/compute/fused_loss.h"
#include "yoke/compute/loss_factor.h"
#include "yoke/kernels/cuda/cross_entropy.h"
#include "yoke/kernels/cuda/have_kernels.h"

namespace yoke::compute {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kWidestRow = 65536;

void* current_stream() {
  return c10::cuda::getCurrentCUDAStream().stream();
}

struct FusedLoss : public torch::autograd::Function<FusedLoss> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& logits,
                               const torch::Tensor& target, int64_t vocabulary) {
    torch::Tensor rows = logits.view({-1, logits.size(-1)});
    torch::Tensor targets = target.reshape({-1}).contiguous();
    YOKE_CHECK(targets.numel() == rows.size(0), "{} targets for {} rows of logits", targets.numel(),
               rows.size(0));
    torch::Tensor losses = torch::empty({rows.size(0)}, rows.options().dtype(torch::kFloat));
    const torch::Tensor& factor = expected_loss_factor();
    kernels::CudaCrossEntropy in;
    in.type = *kernels::cuda_number(rows.scalar_type());
    in.logits = rows.data_ptr();
    in.target = targets.const_data_ptr<int64_t>();
    in.loss = losses.data_ptr<float>();
    in.rows = rows.size(0);
    in.classes = vocabulary;
    in.stride = rows.size(1);
    in.scale = 1.0f / static_cast<float>(rows.size(0));
    in.factor = factor.defined() ? factor.const_data_ptr<float>() : nullptr;
    in.stream = current_stream();
    kernels::cross_entropy(in);
    // No longer an input of autograd: it holds the gradient.
    context->saved_data["gradient"] = logits.detach();
    if (factor.defined()) context->saved_data["factor"] = factor;
    return losses.mean();
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    torch::Tensor gradient = context->saved_data["gradient"].toTensor();
    torch::Tensor factor = gradients[0].to(torch::kFloat).contiguous();
    if (context->saved_data.find("factor") != context->saved_data.end())
      factor = factor / context->saved_data["factor"].toTensor();
    kernels::scale_unless_one(*kernels::cuda_number(gradient.scalar_type()), gradient.data_ptr(),
                              gradient.numel(), factor.data_ptr<float>(), current_stream());
    return {gradient, torch::Tensor(), torch::Tensor()};
  }
};

}  // namespace

bool can_fuse_loss(const torch::Tensor& logits) {
  // fp16 only with a loss scale: without it, small probabilities have no gradient.
  const bool scaled = logits.scalar_type() != torch::kHalf || expected_loss_factor().defined();
  return kernels::have_cuda_kernels() && logits.is_cuda() && kernels::cuda_number(logits.scalar_type()) &&
         scaled && logits.is_contiguous() && logits.requires_grad() && torch::GradMode::is_enabled() &&
         logits.size(-1) % 8 == 0 && logits.size(-1) <= kWidestRow;
}

torch::Tensor fused_loss(const torch::Tensor& logits, const torch::Tensor& target, int64_t vocabulary) {
  return FusedLoss::apply(logits, target, vocabulary);
}

}  // namespace yoke::compute
