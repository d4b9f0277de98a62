// Parameters of which a sample uses few rows, and where a batch numbers them.
#pragma once

#include <string>
#include <vector>

#include "yoke/models/model.h"

namespace yoke::models {

struct KeyedParameter {
  std::string name;
  torch::Tensor tensor;  // [rows, width]
  // Tensor of the batch with the numbers of rows (int64, in any order); -1: all tensors of integers have
  // them.
  int input = 0;
  bool sparse_gradient = false;  // its gradient has the rows that were used, and no others
};

// Of models with sparse samples (SampleKind::kSparse) every matrix with a row for each feature, which input 0
// numbers. Of others the embeddings with sparse gradients (EmbeddingOptions::sparse, EmbeddingBagOptions).
// Throws ConfigError for those that change rows in the forward pass (max_norm).
std::vector<KeyedParameter> keyed_parameters(const Model& model);

}  // namespace yoke::models
