#include "yoke/optim/lbfgs_state.h"

#include "yoke/base/error.h"

namespace yoke::optim {

using kernels::LbfgsVector;

const torch::Tensor& LbfgsState::at(const std::string& name) const {
  for (const auto& [known, tensor] : state_)
    if (known == "lbfgs/" + name) return tensor;
  throw ConfigError("the optimizer has no state '{}': it is not L-BFGS.", name);
}

kernels::LbfgsNumbers LbfgsState::numbers() const {
  kernels::LbfgsNumbers numbers;
  const torch::Tensor rows = at("inverse_curvature").to(torch::kCPU, torch::kDouble).contiguous();
  const auto* values = rows.const_data_ptr<double>();
  numbers.inverse_curvature.assign(values, values + rows.numel());
  numbers.scale = at("scale").item<double>();
  const auto* counters = at("counters").const_data_ptr<int64_t>();
  numbers.iterations = counters[0];
  numbers.remembered = counters[1];
  numbers.oldest = counters[2];
  numbers.step_length = at("step_length").item<double>();
  return numbers;
}

void LbfgsState::set(const kernels::LbfgsNumbers& numbers) const {
  torch::NoGradGuard no_grad;
  at("inverse_curvature").copy_(torch::tensor(numbers.inverse_curvature, torch::kDouble));
  at("scale").fill_(numbers.scale);
  auto* counters = at("counters").mutable_data_ptr<int64_t>();
  counters[0] = numbers.iterations;
  counters[1] = numbers.remembered;
  counters[2] = numbers.oldest;
  at("step_length").fill_(numbers.step_length);
}

std::vector<std::pair<int64_t, torch::Tensor>> LbfgsState::vectors() const {
  std::vector<std::pair<int64_t, torch::Tensor>> all = {{LbfgsVector::kDirection, at("direction")},
                                                        {LbfgsVector::kPrevious, at("previous_gradient")}};
  const torch::Tensor &changes = at("gradient_changes"), &steps = at("steps");
  for (int64_t row = 0; row < changes.size(0); ++row) {
    all.emplace_back(LbfgsVector::change(row), changes[row]);
    all.emplace_back(LbfgsVector::step(row), steps[row]);
  }
  return all;
}

}  // namespace yoke::optim
