// Splits and joins batches of torch::data by rows. Specialise BatchRows for your own batch types.
#pragma once

#include <torch/data/example.h>
#include <torch/types.h>

#include <iterator>
#include <utility>
#include <vector>

namespace yoke {

template <class Batch>
struct BatchRows;  // static int64_t count(batch); Batch part(batch, first, last); Batch join(a, b)

template <>
struct BatchRows<torch::Tensor> {
  static int64_t count(const torch::Tensor& batch) { return batch.size(0); }
  static torch::Tensor part(const torch::Tensor& batch, int64_t first, int64_t last) {
    return batch.slice(0, first, last);
  }
  static torch::Tensor join(const torch::Tensor& a, const torch::Tensor& b) { return torch::cat({a, b}); }
};

template <>
struct BatchRows<torch::data::Example<>> {
  using Example = torch::data::Example<>;
  using Rows = BatchRows<torch::Tensor>;
  static int64_t count(const Example& batch) { return Rows::count(batch.data); }
  static Example part(const Example& batch, int64_t first, int64_t last) {
    return {Rows::part(batch.data, first, last), Rows::part(batch.target, first, last)};
  }
  static Example join(const Example& a, const Example& b) {
    return {Rows::join(a.data, b.data), Rows::join(a.target, b.target)};
  }
};

template <>
struct BatchRows<torch::data::TensorExample> {
  using Example = torch::data::TensorExample;
  using Rows = BatchRows<torch::Tensor>;
  static int64_t count(const Example& batch) { return Rows::count(batch.data); }
  static Example part(const Example& batch, int64_t first, int64_t last) {
    return {Rows::part(batch.data, first, last)};
  }
  static Example join(const Example& a, const Example& b) { return {Rows::join(a.data, b.data)}; }
};

// Batches of examples that are not stacked.
template <class Sample>
struct BatchRows<std::vector<Sample>> {
  using Samples = std::vector<Sample>;
  static int64_t count(const Samples& batch) { return static_cast<int64_t>(batch.size()); }
  static Samples part(const Samples& batch, int64_t first, int64_t last) {
    return {batch.begin() + first, batch.begin() + last};
  }
  static Samples join(Samples a, const Samples& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
};

}  // namespace yoke
