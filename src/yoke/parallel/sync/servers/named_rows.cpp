#include "yoke/parallel/sync/servers/named_rows.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "yoke/base/error.h"

namespace yoke::parallel {

using ps::sparse::Key;

// Keys as the indices that LibTorch takes. The list must outlive the tensor.
torch::Tensor index_of(const std::vector<Key>& keys) {
  return torch::from_blob(const_cast<Key*>(keys.data()), {static_cast<int64_t>(keys.size())}, torch::kInt64);
}

// Where these rows are in an ascending list of keys.
std::vector<Key> places_of(const models::KeyedParameter& parameter, const torch::Tensor& rows,
                           const std::vector<Key>& keys) {
  const torch::Tensor host = rows.to(torch::kCPU).contiguous();
  std::vector<Key> places;
  for (int64_t i = 0; i < host.numel(); ++i) {
    const int64_t row = host.const_data_ptr<int64_t>()[i];
    const auto found = std::lower_bound(keys.begin(), keys.end(), static_cast<Key>(row));
    if (found == keys.end() || *found != static_cast<Key>(row))
      throw ConfigError(
          "row {} of '{}' has a gradient, but the batch does not name it: its value was not pulled. "
          "Set ps.sparse = \"off\".",
          row, parameter.name);
    places.push_back(static_cast<Key>(found - keys.begin()));
  }
  return places;
}

namespace {

template <class T>
int64_t count(const T* values, int64_t size) {
  int64_t found = 0;
  for (int64_t i = 0; i < size; ++i) found += values[i] != 0 ? 1 : 0;
  return found;
}

// Reads each value once; LibTorch's count_nonzero() takes twice as long.
int64_t values_that_are_not_zero(const torch::Tensor& tensor) {
  if (tensor.is_cpu() && tensor.is_contiguous() && tensor.scalar_type() == torch::kFloat32)
    return count(tensor.const_data_ptr<float>(), tensor.numel());
  if (tensor.is_cpu() && tensor.is_contiguous() && tensor.scalar_type() == torch::kFloat64)
    return count(tensor.const_data_ptr<double>(), tensor.numel());
  return tensor.count_nonzero().item<int64_t>();
}

}  // namespace

// Other rows have no gradient if these have all its values that are not zero. Only where they have not, they
// are looked for.
torch::Tensor named_rows(const models::KeyedParameter& parameter, const torch::Tensor& gradient,
                         const std::vector<Key>& keys) {
  torch::Tensor named = gradient.index_select(0, index_of(keys).to(gradient.device()));
  if (values_that_are_not_zero(gradient) != values_that_are_not_zero(named))
    places_of(parameter, (gradient != 0).any(1).nonzero().view({-1}), keys);
  return named;
}

}  // namespace yoke::parallel
