// Memory requirement of a training step, measured by running one: forward, loss and backward on synthetic
// samples.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "yoke/compute/memory_meter.h"
#include "yoke/compute/recompute.h"
#include "yoke/compute/recompute_policy.h"
#include "yoke/engine/worker.h"

namespace yoke::engine {

// Memory permanently held by a model and its optimizer, in bytes.
struct HeldMemory {
  int64_t weights = 0;
  int64_t gradients = 0;  // as large as the weights, between backward and update
  int64_t optimizer = 0;  // moments, fp32 masters
};
HeldMemory held_memory(Worker& worker);

// Tensors allocated along one forward and backward, without weights and gradients.
struct PassTrace {
  std::vector<compute::MemoryPoint> points;
  double forward_end = 0;  // seconds, as the points
};

// Elements of gradients by size: counts[i] of them are at least 2^(lowest_exponent + i), less than twice
// that.
struct GradientSizes {
  int64_t zeros = 0;
  int lowest_exponent = 0;
  std::vector<int64_t> counts;
};

// Runs steps of a worker that has no strategy yet: nothing is communicated, and parameters, statistics,
// optimizer and random states are not changed. Requires: no pipeline, no synchronised BatchNorm. Passes on
// LibTorch's out-of-memory errors.
class StepProbe {
 public:
  StepProbe(Worker& worker, const WorkerOptions& options);

  // Activations kept by each block of the model, for compute::segments_keeping().
  std::vector<compute::BlockCost> block_costs(int64_t batch_size);

  // Peak memory of the process (CPU: resident set) or of tensors (CUDA) during a step: weights, masters,
  // optimizer state, gradients, activations, logits, workspaces, and copies made by the update.
  int64_t peak_bytes(const std::vector<compute::Segment>& segments, int64_t batch_size);

  // Tensors of forward and backward only, beyond what is in use without them.
  int64_t pass_tensor_bytes(const std::vector<compute::Segment>& segments, int64_t batch_size);

  // The same along the pass. Host time: on CUDA the kernels run later.
  PassTrace trace(const std::vector<compute::Segment>& segments, int64_t batch_size);

  // Of the gradients of one pass; those that are not finite are not counted.
  GradientSizes gradient_sizes(int64_t batch_size);

  // Likewise for an evaluation with batches of that size.
  int64_t evaluation_peak_bytes(int64_t batch_size);

 private:
  struct Sample;
  Sample sample(int64_t batch_size) const;
  void forward_and_backward(const Sample& sample, const std::vector<compute::Segment>& segments,
                            const std::function<void()>& between = {});
  struct Peak {
    int64_t bytes;    // in use, as counted by the device
    int64_t tensors;  // allocated since the start
  };
  template <class Work>
  Peak peak_of(const Work& work);
  Peak peak_of_pass(const std::vector<compute::Segment>& segments, int64_t batch_size);
  void keep_gradients();
  void drop_gradients();

  Worker& worker_;
  const WorkerOptions& options_;
  std::vector<torch::Tensor> parameters_;
  std::vector<RecomputeFunction> blocks_;
  HeldMemory held_;
  int64_t update_bytes_ = 0;  // fp32 copies of narrow gradients
};

// Memory of a step beyond what is in use without it: per sample, and fixed.
struct StepNeeds {
  double sample = 0;
  double base = 0;

  int64_t largest_batch(double free) const;
};

// Measured with small steps, with any recomputation policy except budget.
StepNeeds step_needs(StepProbe& probe, const Worker& worker, const std::string& recompute);

}  // namespace yoke::engine
