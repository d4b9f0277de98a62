// Views of a vector that holds tensors one after the other.
#pragma once

#include <torch/types.h>

#include <vector>

namespace yoke::parallel {

// A view for each of `like`, with its shape.
inline std::vector<torch::Tensor> flat_parts(const torch::Tensor& flat,
                                             const std::vector<torch::Tensor>& like) {
  std::vector<torch::Tensor> parts;
  int64_t at = 0;
  for (const torch::Tensor& one : like) {
    parts.push_back(flat.narrow(0, at, one.numel()).view(one.sizes()));
    at += one.numel();
  }
  return parts;
}

}  // namespace yoke::parallel
