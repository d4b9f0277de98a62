#include "yoke/parallel/common/gradient_hooks.h"

#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace yoke::parallel {

GradientHooks::~GradientHooks() {
  for (Installed& one : installed_) one.accumulator->del_post_hook(one.key);
}

void GradientHooks::add(const torch::Tensor& parameter, std::function<void()> on_gradient) {
  auto accumulator = torch::autograd::impl::grad_accumulator(parameter);
  using torch::autograd::variable_list;
  uintptr_t key = accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
      [on_gradient = std::move(on_gradient)](const variable_list& outputs, const variable_list&) {
        on_gradient();
        return outputs;
      }));
  installed_.push_back({std::move(accumulator), key});
}

}  // namespace yoke::parallel
