// The tensors an optimizer updates: parameters, their fp32 masters if needed, and the current gradients.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "yoke/optim/optimizer.h"
#include "yoke/optim/options.h"

namespace yoke::optim {

// Parameters of the same type and settings, as lists for fused operators.
struct UpdateGroup {
  std::vector<size_t> indices;           // into the parameter list
  std::vector<torch::Tensor> targets;    // what to update: parameter or master
  std::vector<torch::Tensor> gradients;  // same dtype and layout as the target
  ParameterSettings settings = {};
};

struct SparseUpdate {
  size_t index;
  torch::Tensor target;
  torch::Tensor gradient;  // coalesced
  ParameterSettings settings = {};
};

class ParameterList {
 public:
  // Requires: dense leaves without overlapping elements, on one device.
  ParameterList(const OptimizerOptions& options, std::vector<NamedTensor> parameters);

  size_t size() const { return parameters_.size(); }
  const std::string& name(size_t index) const { return parameters_[index].first; }
  const torch::Tensor& parameter(size_t index) const { return parameters_[index].second; }
  // The fp32 master of a bf16 or fp16 parameter, else the parameter.
  const torch::Tensor& target(size_t index) const { return targets_[index]; }
  torch::Device device() const;
  const ParameterSettings& settings(size_t index) const { return settings_[index]; }
  // Whether all have the learning rate and weight decay of the options.
  bool uniform() const { return uniform_; }

  // The parameters with a dense gradient; groups are never empty. Gradients of low-precision parameters are
  // fp32 copies.
  std::vector<UpdateGroup> dense_updates() const;
  std::vector<SparseUpdate> sparse_updates() const;
  // Rounds the masters to their parameters.
  void write_back() const;
  void zero_grad() const;

  // One zero tensor per target, with its layout.
  std::vector<torch::Tensor> zeros() const;
  // Appends "master/<name>" for parameters that have one.
  void append_masters(std::vector<NamedTensor>& state) const;
  // Appends "<kind>/<name>" for every parameter.
  void append(std::vector<NamedTensor>& state, const std::string& kind,
              const std::vector<torch::Tensor>& tensors) const;

 private:
  bool has_master(size_t index) const { return !targets_[index].is_same(parameters_[index].second); }
  UpdateGroup gather(const std::vector<size_t>& group) const;

  std::vector<NamedTensor> parameters_;
  std::vector<torch::Tensor> targets_;
  std::vector<ParameterSettings> settings_;
  std::vector<std::vector<size_t>> groups_;  // indices with the same parameter dtype and settings
  bool uniform_ = true;
};

// Elements of `tensors` at `indices`.
std::vector<torch::Tensor> select(const std::vector<torch::Tensor>& tensors,
                                  const std::vector<size_t>& indices);

}  // namespace yoke::optim
