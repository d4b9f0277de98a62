// Parameters of which a sample uses few rows, and where its inputs number them.
#pragma once

#include <string>
#include <vector>

#include "yoke/models/model.h"

namespace yoke::models {

struct KeyedParameter {
  std::string name;
  torch::Tensor tensor;  // [rows, width]
  size_t input = 0;      // of the model: int64 numbers of rows, in any order
};

// Of models with sparse samples (SampleKind::kSparse): input 0 numbers features, and every matrix with a row
// for each feature is used only in the rows that it names. Empty for other models.
std::vector<KeyedParameter> keyed_parameters(const Model& model);

}  // namespace yoke::models
