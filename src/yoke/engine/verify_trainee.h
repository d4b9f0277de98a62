// What verify() compares: workers that start from the same weights, and differences of tensors.
#pragma once

#include <span>
#include <vector>

#include "yoke/data/dataset.h"
#include "yoke/engine/worker.h"

namespace yoke::engine {

// Numbers of one kind, compared element by element; relative to the largest where that is above 1.
double relative_difference(const std::vector<torch::Tensor>& ours,
                           const std::vector<torch::Tensor>& reference);

std::vector<torch::Tensor> gradients_of(const std::vector<torch::Tensor>& parameters);

// A worker with the weights it is told to start from.
struct Trainee {
  explicit Trainee(const WorkerOptions& options);

  // Of all parameters and buffers of the model; a stage takes its own.
  void start_from(const std::vector<torch::Tensor>& weights);

  // The loss and gradients of one step, from the samples at `indices`, cut into micro-batches. `share`: what
  // their mean counts in that of all replicas.
  double compute(const data::Dataset& dataset, std::span<const int64_t> indices, int64_t micro_batches,
                 double share = 1);

  std::unique_ptr<Worker> worker;
  std::vector<torch::Tensor> parameters;  // of the whole model
};

}  // namespace yoke::engine
