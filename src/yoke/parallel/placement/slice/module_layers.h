// What a tensor plan can name in a module, and which tensors each layer owns.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <string>
#include <vector>

#include "yoke/plan/tensor/layer_cuts.h"

namespace yoke::parallel {

struct LayerTensors {
  plan::TensorLayer layer;
  std::string weight;             // full name of the parameter that is cut
  std::string bias;               // "": none
  std::vector<std::string> rest;  // of one value a channel: BatchNorm's running statistics
  bool input_first = false;       // the weight is [in, out] (GPT-2's Conv1D)
};

std::vector<LayerTensors> layers_of(const torch::nn::Module& module);

}  // namespace yoke::parallel
