// The state of the L-BFGS optimizer: tensors by name, for those who keep it elsewhere during training.
#pragma once

#include <string>
#include <vector>

#include "yoke/kernels/lbfgs.h"
#include "yoke/optim/optimizer.h"

namespace yoke::optim {

// A view of the state() of L-BFGS. Throws ConfigError if it is that of another optimizer.
class LbfgsState {
 public:
  explicit LbfgsState(std::vector<NamedTensor> state) : state_(std::move(state)) {}

  kernels::LbfgsNumbers numbers() const;
  void set(const kernels::LbfgsNumbers& numbers) const;
  // kDirection, kPrevious and all pairs: their numbers (kernels::LbfgsVector), and where they are stored.
  std::vector<std::pair<int64_t, torch::Tensor>> vectors() const;

 private:
  const torch::Tensor& at(const std::string& name) const;

  std::vector<NamedTensor> state_;
};

}  // namespace yoke::optim
