// How much memory a training step needs, found by running one: forward, loss and backward on synthetic
// samples.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/compute/recompute_policy.h"
#include "yoke/engine/worker.h"

namespace yoke::engine {

// What a model and its optimizer hold all the time.
struct HeldMemory {
  int64_t weights = 0;
  int64_t gradients = 0;  // as large as the weights, between backward and update
  int64_t optimizer = 0;  // moments, fp32 masters
};
HeldMemory held_memory(Worker& worker);

// Runs steps of a worker that has no strategy yet: nothing is communicated, and parameters, statistics,
// optimizer and random numbers stay as they are. Requires: no pipeline, no synchronised BatchNorm. Throws
// what LibTorch throws where memory runs out.
class StepProbe {
 public:
  StepProbe(Worker& worker, const WorkerOptions& options);

  // What each block of the model keeps, for segments_within().
  std::vector<compute::BlockCost> block_costs(int64_t batch_size);

  // Peak memory of the process (CPU: resident set) or of tensors (CUDA) over a step: weights, masters,
  // optimizer state, gradients, activations, logits, workspaces, and the update's copies.
  int64_t peak_bytes(const std::vector<compute::Segment>& segments, int64_t batch_size);

  // Tensors of forward and backward alone, beyond what is in use without them.
  int64_t pass_tensor_bytes(const std::vector<compute::Segment>& segments, int64_t batch_size);

  // The same for an evaluation in batches of that size.
  int64_t evaluation_peak_bytes(int64_t batch_size);

 private:
  struct Sample;
  Sample sample(int64_t batch_size) const;
  void forward_and_backward(const Sample& sample, const std::vector<compute::Segment>& segments);
  struct Peak {
    int64_t bytes;    // in use, as the device counts
    int64_t tensors;  // allocated since the beginning
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

// A step's memory beyond what is in use without it: for each sample, and for none.
struct StepNeeds {
  double sample = 0;
  double base = 0;

  int64_t largest_batch(double free) const;
};

// From small steps, with recomputation by one of the policies but budget.
StepNeeds step_needs(StepProbe& probe, const Worker& worker, const std::string& recompute);

}  // namespace yoke::engine
