#include "yoke/parallel/schedule/threads/nested.h"

#include <algorithm>

#include "yoke/base/error.h"

namespace yoke {
namespace {

void collect(const Nested& nested, std::vector<torch::Tensor>& tensors) {
  if (nested.is_tensor()) {
    tensors.push_back(nested.tensor());
    return;
  }
  if (nested.is_map()) {
    for (const auto& [key, part] : nested.map()) collect(part, tensors);
    return;
  }
  for (const Nested& part : nested.list()) collect(part, tensors);
}

Nested rebuild(const Nested& shape, const std::vector<torch::Tensor>& tensors, size_t& next) {
  if (shape.is_tensor()) return tensors.at(next++);
  if (shape.is_map()) {
    Nested::Map map;
    for (const auto& [key, part] : shape.map()) map.emplace(key, rebuild(part, tensors, next));
    return map;
  }
  Nested::List list;
  for (const Nested& part : shape.list()) list.push_back(rebuild(part, tensors, next));
  return list;
}

bool same_nesting(const Nested& a, const Nested& b) {
  if (a.is_tensor() || b.is_tensor()) return a.is_tensor() == b.is_tensor();
  if (a.is_map() || b.is_map()) {
    if (a.is_map() != b.is_map() || a.map().size() != b.map().size()) return false;
    return std::equal(a.map().begin(), a.map().end(), b.map().begin(),
                      [](const auto& one, const auto& other) {
                        return one.first == other.first && same_nesting(one.second, other.second);
                      });
  }
  if (a.list().size() != b.list().size()) return false;
  for (size_t i = 0; i < a.list().size(); ++i)
    if (!same_nesting(a[i], b[i])) return false;
  return true;
}

// Number of rows of all tensors that are split, or -1 if none is.
int64_t common_rows(const std::vector<torch::Tensor>& tensors, int64_t dim) {
  int64_t rows = -1;
  for (const torch::Tensor& tensor : tensors) {
    if (tensor.dim() <= dim) continue;
    if (rows < 0) rows = tensor.size(dim);
    if (tensor.size(dim) != rows)
      throw ConfigError("inputs to scatter have {} and {} rows in dim {}. They must have the same number.",
                        rows, tensor.size(dim), dim);
  }
  return rows;
}

}  // namespace

std::vector<torch::Tensor> Nested::flatten() const {
  std::vector<torch::Tensor> tensors;
  collect(*this, tensors);
  return tensors;
}

Nested Nested::with(const std::vector<torch::Tensor>& tensors) const {
  size_t next = 0;
  Nested result = rebuild(*this, tensors, next);
  YOKE_CHECK(next == tensors.size(), "{} tensors for {} places", tensors.size(), next);
  return result;
}

std::vector<Nested> scatter(const Nested& whole, int64_t parts, int64_t dim) {
  std::vector<torch::Tensor> tensors = whole.flatten();
  int64_t rows = common_rows(tensors, dim);
  int64_t size = rows <= 0 ? 1 : (rows + parts - 1) / parts;
  int64_t count = rows <= 0 ? 1 : (rows + size - 1) / size;
  std::vector<Nested> result;
  for (int64_t part = 0; part < count; ++part) {
    std::vector<torch::Tensor> pieces = tensors;
    for (torch::Tensor& piece : pieces)
      if (piece.dim() > dim) piece = piece.slice(dim, part * size, (part + 1) * size);
    result.push_back(whole.with(pieces));
  }
  return result;
}

Nested gather(const std::vector<Nested>& parts, int64_t dim, std::optional<torch::Device> device) {
  YOKE_CHECK(!parts.empty(), "nothing to gather");
  std::vector<std::vector<torch::Tensor>> tensors;
  for (const Nested& part : parts) {
    if (!same_nesting(part, parts[0]))
      throw ConfigError("results to gather are nested differently on replica {} and replica 0.",
                        tensors.size());
    tensors.push_back(part.flatten());
  }
  std::vector<torch::Tensor> joined;
  for (size_t i = 0; i < tensors[0].size(); ++i) {
    bool scalar = tensors[0][i].dim() == 0;
    std::vector<torch::Tensor> pieces;
    for (const auto& of_part : tensors) {
      torch::Tensor piece = of_part[i].to(device.value_or(tensors[0][i].device()));
      pieces.push_back(scalar ? piece.view({1}) : piece);
    }
    joined.push_back(torch::cat(pieces, scalar ? 0 : dim));
  }
  return parts[0].with(joined);
}

}  // namespace yoke
