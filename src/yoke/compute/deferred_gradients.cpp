#include "yoke/compute/deferred_gradients.h"

#include <ATen/autocast_mode.h>
#include <torch/utils.h>

#include <utility>

namespace yoke::compute {
namespace {

thread_local DeferredGradients* put_off = nullptr;

}  // namespace

DeferredGradients::Use::Use(DeferredGradients* gradients) : before_(std::exchange(put_off, gradients)) {}

DeferredGradients::Use::~Use() {
  put_off = before_;
}

void DeferredGradients::run() {
  torch::NoGradGuard no_grad;
  for (auto& [parameter, gradient] : list_) {
    torch::Tensor own = gradient();
    gradient = nullptr;  // what it holds is not needed again
    if (parameter.grad().defined())
      parameter.mutable_grad().add_(own);
    else
      parameter.mutable_grad() = own;
  }
  list_.clear();
}

bool defers_gradients(const torch::Tensor& weight) {
  return put_off != nullptr && weight.requires_grad() && weight.is_leaf() &&
         !at::autocast::is_autocast_enabled(weight.device().type());
}

bool defer_gradient(const torch::Tensor& weight, std::function<torch::Tensor()> gradient) {
  if (!defers_gradients(weight)) return false;
  put_off->add(weight, std::move(gradient));
  return true;
}

}  // namespace yoke::compute
