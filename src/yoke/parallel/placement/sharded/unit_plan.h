// Which parameters are gathered together.
#pragma once

#include <torch/nn/module.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "yoke/models/model.h"
#include "yoke/parallel/common/give_values.h"

namespace yoke::parallel {

// One unit: parameters of one type that are all trained, or all frozen.
struct UnitPlan {
  std::string name;
  std::vector<size_t> parameters;  // indices, in order
  torch::ScalarType gather_type = torch::kFloat32;
  bool trained = true;
};

// Units by the modules' names: see FullyShardOptions::units. Throws ConfigError for a name that stands for no
// module with parameters. The parameters are distinct_parameters(module).
std::vector<UnitPlan> plan_units(const torch::nn::Module& module, const std::vector<std::string>& names,
                                 std::optional<torch::ScalarType> gather_type);

// What of a model is sharded.
struct ShardedPart {
  NamedTensors parameters, buffers;
  std::set<std::string> apart;  // parameters that are units of their own
};

// One unit for each block. A parameter of several blocks belongs to the first.
std::vector<UnitPlan> plan_units(const models::Model& model, const ShardedPart& part,
                                 std::optional<torch::ScalarType> gather_type);

}  // namespace yoke::parallel
