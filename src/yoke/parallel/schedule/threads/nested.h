// A tensor, or a list or map of such: inputs and outputs of a model.
#pragma once

#include <torch/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace yoke {

class Nested {
 public:
  using List = std::vector<Nested>;
  using Map = std::map<std::string, Nested>;

  Nested() = default;                                          // an empty list
  Nested(torch::Tensor tensor) : value_(std::move(tensor)) {}  // NOLINT: meant to convert
  Nested(List list) : value_(std::move(list)) {}               // NOLINT: meant to convert
  Nested(Map map) : value_(std::move(map)) {}                  // NOLINT: meant to convert

  bool is_tensor() const { return std::holds_alternative<torch::Tensor>(value_); }
  bool is_map() const { return std::holds_alternative<Map>(value_); }
  // Throw std::bad_variant_access for another kind.
  const torch::Tensor& tensor() const { return std::get<torch::Tensor>(value_); }
  const List& list() const { return std::get<List>(value_); }
  const Map& map() const { return std::get<Map>(value_); }
  const Nested& operator[](size_t i) const { return list().at(i); }
  const Nested& operator[](const std::string& key) const { return map().at(key); }

  // All tensors in order; of a map in the order of its keys.
  std::vector<torch::Tensor> flatten() const;
  // The same nesting with these tensors. Requires equally many.
  Nested with(const std::vector<torch::Tensor>& tensors) const;

 private:
  std::variant<List, torch::Tensor, Map> value_;
};

// Splits along `dim` into at most `parts` parts of nearly equal size, like torch::chunk: fewer if there are
// fewer rows. Tensors without that dimension (scalars) go to every part. Throws ConfigError if tensors differ
// in the number of rows.
std::vector<Nested> scatter(const Nested& whole, int64_t parts, int64_t dim);

// Concatenates the parts along `dim`, on `device` (default: that of the first); scalars become a vector with
// one element per part. Throws ConfigError if the parts are nested differently.
Nested gather(const std::vector<Nested>& parts, int64_t dim,
              std::optional<torch::Device> device = std::nullopt);

}  // namespace yoke
