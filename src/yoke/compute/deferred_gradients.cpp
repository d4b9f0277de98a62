#include "yoke/compute/deferred_gradients.h"

#include <ATen/autocast_mode.h>
#include <torch/utils.h>

#include <utility>

namespace yoke::compute {
namespace {

thread_local DeferredGradients* taker = nullptr;

}  // namespace

DeferredGradients::Use::Use(DeferredGradients* gradients) : before_(std::exchange(taker, gradients)) {}

DeferredGradients::Use::~Use() {
  taker = before_;
}

void DeferredGradients::run() {
  torch::NoGradGuard no_grad;
  for (std::function<void()>& add : list_) {
    add();
    add = nullptr;  // frees what it captured
  }
  list_.clear();
}

bool takes_gradients(const torch::Tensor& weight) {
  return taker != nullptr && weight.requires_grad() && weight.is_leaf() &&
         !at::autocast::is_autocast_enabled(weight.device().type());
}

bool takes_at_once() {
  return taker != nullptr && taker->at_once_;
}

bool take_gradient(const torch::Tensor& weight, std::function<void()> add) {
  if (!takes_gradients(weight)) return false;
  if (taker->at_once_)
    add();
  else
    taker->list_.push_back(std::move(add));
  return true;
}

void add_product_to_gradient(torch::Tensor weight, const torch::Tensor& left, const torch::Tensor& right) {
  torch::Tensor& sum = weight.mutable_grad();
  if (sum.defined())
    sum.addmm_(left, right);
  else
    sum = at::mm(left, right);
}

void add_to_gradient(torch::Tensor weight, const torch::Tensor& gradient) {
  torch::Tensor& sum = weight.mutable_grad();
  if (sum.defined())
    sum.add_(gradient);
  else
    sum = gradient;
}

}  // namespace yoke::compute
