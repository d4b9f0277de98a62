// Rows of a parameter that a batch names: what is pulled before it is used, and pushed after.
#pragma once

#include <torch/types.h>

#include <vector>

#include "yoke/models/keyed.h"
#include "yoke/ps/sparse/client.h"

namespace yoke::parallel {

// Keys as the indices that LibTorch takes. The list must outlive the tensor.
torch::Tensor index_of(const std::vector<ps::sparse::Key>& keys);

// Where these rows are in an ascending list of keys. Throws ConfigError that names one that is not.
std::vector<ps::sparse::Key> places_of(const models::KeyedParameter& parameter, const torch::Tensor& rows,
                                       const std::vector<ps::sparse::Key>& keys);

// These rows of a dense gradient. Throws ConfigError if another row has a gradient: its value was not pulled,
// and its gradient would be lost.
torch::Tensor named_rows(const models::KeyedParameter& parameter, const torch::Tensor& gradient,
                         const std::vector<ps::sparse::Key>& keys);

}  // namespace yoke::parallel
