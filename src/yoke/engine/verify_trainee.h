// What verify() compares: workers that start from the same weights, and differences of numbers.
#pragma once

#include <mutex>
#include <span>
#include <vector>

#include "yoke/data/dataset.h"
#include "yoke/data/sampler.h"
#include "yoke/engine/verify.h"

namespace yoke::engine {

// Numbers of one kind, compared element by element, relative to the largest of the reference. Infinite where
// lists, shapes or what is defined differ, a number is not finite, or there is nothing to compare.
double relative_difference(const std::vector<torch::Tensor>& ours,
                           const std::vector<torch::Tensor>& reference);
double relative_difference(double ours, double reference);

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

// One device, the samples of every step, and what was found. Ranks share it.
struct VerifyBench {
  explicit VerifyBench(const VerifyOptions& what);

  // A worker of the layout that starts as the one device did.
  Trainee trainee(int rank, const WorkerOptions& options) const;

  std::vector<int64_t> samples(int64_t step) const { return sampler->indices(step); }
  double lr() const { return options.alone.optimizer.lr; }

  // The one device's step: the first rank computes and commits it while the others wait.
  void compute_reference(int64_t step, double loss, int64_t micro_batches);
  void commit_reference() { reference.worker->strategy->commit({lr(), false}); }

  // Keeps the largest. Thread-safe.
  void note(const Differences& found);

  const VerifyOptions& options;
  Trainee reference;
  std::vector<torch::Tensor> weights;  // at the start
  std::unique_ptr<data::Dataset> dataset;
  std::unique_ptr<data::Sampler> sampler;
  double expected_loss = 0;    // of the step
  std::vector<char> compared;  // by parameter: some rank holds it and compares it
  std::mutex mutex;
  Verification result;
};

}  // namespace yoke::engine
