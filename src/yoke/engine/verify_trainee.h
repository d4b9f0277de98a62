// Internals of verify(): workers that start from the same weights, and relative differences.
#pragma once

#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "yoke/data/dataset.h"
#include "yoke/data/sampler.h"
#include "yoke/engine/verify.h"

namespace yoke::engine {

// Compares element by element, relative to the largest value of the reference. Infinite if lists, shapes or
// what is defined differ, a value is not finite, or there is nothing to compare.
double relative_difference(const std::vector<torch::Tensor>& ours,
                           const std::vector<torch::Tensor>& reference);
double relative_difference(double ours, double reference);

// A worker with given initial weights.
struct Trainee {
  explicit Trainee(const WorkerOptions& options);

  // All parameters and buffers of the model by name; every rank takes its pieces.
  void start_from(const std::map<std::string, torch::Tensor>& weights);

  // Computes loss and gradients of one step from the samples at `indices`, split into micro-batches. `share`:
  // weight of their mean among all replicas. Returns the loss over all replicas if ranks are in lockstep.
  double compute(const data::Dataset& dataset, std::span<const int64_t> indices, int64_t micro_batches,
                 double share = 1);

  std::unique_ptr<Worker> worker;
  double lr;  // of every step
};

// The reference device, the samples of every step, and the results. Shared by all ranks.
struct VerifyBench {
  explicit VerifyBench(const VerifyOptions& what);

  // A worker of the layout with the reference's initial weights.
  Trainee trainee(int rank, const WorkerOptions& options) const;

  std::vector<int64_t> samples(int64_t step) const { return sampler->indices(step); }
  double lr() const { return options.alone.optimizer.lr; }

  // The reference's step: the first rank computes and commits it while the others wait.
  void compute_reference(const std::vector<int64_t>& samples, double loss, int64_t micro_batches);
  void commit_reference() { reference.worker->strategy->commit({lr(), false}); }

  // Difference between these pieces and the reference's tensors of the same names.
  double apart(const std::vector<parallel::StatePiece>& pieces, bool gradients) const;

  // Keeps the maximum. Thread-safe.
  void note(const Differences& found);

  const VerifyOptions& options;
  Trainee reference;
  std::map<std::string, torch::Tensor> weights;     // initial
  std::map<std::string, torch::Tensor> parameters;  // of the reference
  std::unique_ptr<data::Dataset> dataset;
  std::unique_ptr<data::Sampler> sampler;
  double expected_loss = 0;                // of the step
  std::map<std::string, double> compared;  // elements of each parameter, over all ranks and steps
  std::mutex mutex;
  Verification result;
};

}  // namespace yoke::engine
