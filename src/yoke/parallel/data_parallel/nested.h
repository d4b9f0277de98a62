// A tensor, or a list of such: what a model takes and gives.
#pragma once

#include <torch/types.h>

#include <functional>
#include <utility>
#include <variant>
#include <vector>

namespace yoke {

class Nested {
 public:
  using List = std::vector<Nested>;

  Nested() = default;                                          // an empty list
  Nested(torch::Tensor tensor) : value_(std::move(tensor)) {}  // NOLINT: meant to convert
  Nested(List list) : value_(std::move(list)) {}               // NOLINT: meant to convert

  bool is_tensor() const { return std::holds_alternative<torch::Tensor>(value_); }
  // Throw std::bad_variant_access for the other kind.
  const torch::Tensor& tensor() const { return std::get<torch::Tensor>(value_); }
  const List& list() const { return std::get<List>(value_); }
  const Nested& operator[](size_t i) const { return list().at(i); }

  // All tensors, from the first to the last.
  std::vector<torch::Tensor> flatten() const;
  // The same nesting with these tensors instead. Requires as many.
  Nested with(const std::vector<torch::Tensor>& tensors) const;

 private:
  std::variant<List, torch::Tensor> value_;
};

// Cut along `dim` into at most `parts` parts of nearly equal size, as torch::chunk does: fewer where there
// are fewer rows. Tensors without that many dimensions (scalars) go to every part. Throws ConfigError when
// tensors disagree about the number of rows.
std::vector<Nested> scatter(const Nested& whole, int64_t parts, int64_t dim);

// The parts joined along `dim`, on the device of the first; scalars become a vector with one for each part.
// Throws ConfigError when the parts are nested differently.
Nested gather(const std::vector<Nested>& parts, int64_t dim);

}  // namespace yoke
