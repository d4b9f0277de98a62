// Which parameters are gathered together.
#pragma once

#include <torch/nn/module.h>

#include <optional>
#include <string>
#include <vector>

#include "yoke/models/model.h"
#include "yoke/parallel/common/give_values.h"

namespace yoke::parallel {

// One unit: parameters of one type that are all trained, or all frozen.
struct UnitPlan {
  std::string name;
  std::vector<size_t> parameters;  // indices of distinct_parameters(), in order
  torch::ScalarType gather_type = torch::kFloat32;
  bool trained = true;
};

// Units by the modules' names: see FullyShardOptions::units. Throws ConfigError for a name that stands for no
// module with parameters.
std::vector<UnitPlan> plan_units(const torch::nn::Module& module, const std::vector<std::string>& names,
                                 std::optional<torch::ScalarType> gather_type);

// One unit for each block. A parameter of several blocks belongs to the first.
std::vector<UnitPlan> plan_units(const models::Model& model, std::optional<torch::ScalarType> gather_type);

}  // namespace yoke::parallel
