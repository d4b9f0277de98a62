// The parameters of a replica in fragments: groups of whole tensors that travel as one message.
#pragma once

#include <torch/types.h>

#include <vector>

#include "yoke/parallel/common/ddp/comm_hook.h"
#include "yoke/parallel/state.h"

namespace yoke::parallel {

// A parameter and the tensor that decides its value: itself, or its fp32 master copy, which the optimizer
// moves (low-precision weights).
struct Averaged {
  std::string name;
  torch::Tensor parameter;
  torch::Tensor value;
};

// Those of a model. `optimizer`: its state, where masters are found.
std::vector<Averaged> averaged_parameters(const NamedTensors& parameters, const NamedTensors& optimizer);

struct Fragment {
  std::vector<Averaged> tensors;
  GradientBucket bucket;   // flat: what travels
  torch::Tensor sent;      // this rank's values when the round began
  torch::Tensor anchor;    // the values that all replicas agreed on last; undefined: not kept
  torch::Tensor momentum;  // of the outer step; undefined: there is none
  bool in_flight = false;
  bool more = false;  // phases of its hook are left

  // Copies the values of the parameters into `flat`, or back.
  void gather(torch::Tensor flat) const;
  void scatter(const torch::Tensor& flat) const;
  // Adds `flat` to the parameters.
  void add(const torch::Tensor& flat) const;
  // The part of `flat` that belongs to tensor i, in its shape.
  torch::Tensor part(const torch::Tensor& flat, size_t i) const;
};

// Cuts into `count` fragments of about equal size, in the order of the model. Throws ConfigError where there
// are fewer tensors.
std::vector<Fragment> cut_into_fragments(std::vector<Averaged> tensors, int64_t count,
                                         comm::Communicator& comm);

}  // namespace yoke::parallel
