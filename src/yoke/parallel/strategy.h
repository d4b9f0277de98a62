// How one training step is executed on the available workers.
//
// Three verbs: acquire (make parameters current), compute (forward, backward), commit (combine, update). The
// engine calls them in this order, compute once per accumulated micro-batch. One thread.
//
// If acquire() or compute() throws, the step is void on this rank. A step that has sent nothing to other
// ranks may be repeated from acquire(); otherwise the next compute() is an error that says so, and the other
// ranks fail too, at once or after their timeout.
#pragma once

#include <torch/types.h>

#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "yoke/comm/communicator.h"
#include "yoke/models/model.h"
#include "yoke/optim/options.h"
#include "yoke/parallel/state.h"

namespace yoke::parallel {

// Result of compute(). Scalars stay on the device; reading them is up to the caller.
struct ComputeResult {
  torch::Tensor loss;  // mean over the samples, detached
  double forward_seconds = 0;
  double backward_seconds = 0;
};

// One of the batches whose gradients make up a step.
struct MicroBatch {
  double weight = 1;      // of its gradient
  bool last = true;       // of the step: replicas communicate with this one
  double lr = 0;          // of the step, for strategies that update during compute()
  bool measures = false;  // commit() of the step will be asked for the gradient norm
};

// Per-rank status of a step, reduced over all ranks.
struct StepNews {
  torch::Tensor loss;   // mean over the samples of the step; readable after settle()
  int stop_signal = 0;  // 0: continue
};

// Communication of a step.
struct Communication {
  double seconds = 0;  // in flight
  double exposed = 0;  // waited for
  struct Part {
    double started = 0;  // now_seconds()
    double ended = 0;
  };
  std::vector<Part> buckets;
};

struct CommitOptions {
  double lr = 0;
  // Measure the gradient norm, and do not update if it is not finite.
  bool measure_norm = false;
};

struct CommitResult {
  std::optional<double> grad_norm;  // before clipping
  bool updated = true;              // false: gradients were not finite, parameters are unchanged
};

// Bytes sent by a rank so far, by axis of the mesh.
struct Traffic {
  int64_t pipeline = 0, data = 0, tensor = 0;
};

// Which samples of every global batch a rank reads.
struct DataShare {
  int64_t part = 0;
  int64_t parts = 1;
  int64_t batches = 1;    // of data.batch_size samples each: more than one if replicas share the process
  bool reads = true;      // false: only the shapes of the samples matter on this rank
  int64_t passes = 1;     // micro-batches per batch
  bool together = false;  // several ranks process the same samples together: none may leave a pass early
};

// Where a run starts: step and data position.
struct RunStart {
  int64_t step = 0;
  int64_t epoch = 0;
  int64_t sample = 0;
};

// What a strategy returns at the end of a run.
struct RunEnd {
  std::vector<int64_t> peak_memory;  // bytes, by rank
  struct Report {
    std::string file;  // in the run's folder
    std::string text;
  };
  std::vector<Report> reports;  // written by rank 0
  // Error after the last step, reported once records are written
  std::shared_ptr<const std::exception> problem;
};

// A single device that reproduces a strategy whose result differs from plain one-device training, for example
// with stale gradients.
class Replay {
 public:
  virtual ~Replay() = default;
  // One batch. Returns its mean loss.
  virtual double step(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target, double lr) = 0;
  // The newest weights, by name.
  virtual NamedTensors weights() const = 0;
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  // Makes the parameters of this rank current.
  virtual void acquire() = 0;
  // Forward and backward of one micro-batch (host tensors); adds weight * gradient.
  virtual ComputeResult compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                                const MicroBatch& micro) = 0;
  // Once per step, between the last compute and commit: reduces the status over all ranks of the step.
  virtual StepNews agree(const StepNews& here) { return here; }
  // Returns once every loss returned by agree() can be read.
  virtual void settle() {}
  // Every rank gets the buffers (BatchNorm statistics) that a checkpoint would hold, so that what is
  // evaluated is what is saved. Collective, between steps.
  virtual void share_buffers() {}
  // Finishes work that overlaps steps, on all ranks: call it before reading parameters, and at the end.
  virtual void drain() {}
  // Of the last step; empty without peers.
  virtual std::optional<Communication> communication() const { return std::nullopt; }
  // Bytes sent since creation, by axis. Zeros for threads of one process.
  virtual Traffic traffic() const { return {}; }
  // Gradient noise scale (critical batch size) in samples, if measured.
  virtual std::optional<double> noise_scale() const { return std::nullopt; }
  // Combines gradients and updates the parameters.
  virtual CommitResult commit(const CommitOptions& options) = 0;
  // The gradients of the step on this rank, as pieces of the parameters; between agree() and commit().
  // Collective. For comparison: slow.
  virtual std::vector<StatePiece> gradients() { return {}; }
  // Name of the first parameter with a non-finite gradient. For messages: slow.
  virtual std::optional<std::string> first_non_finite_gradient() = 0;
  // If steps are counted elsewhere: steps and minibatches of all workers together, so far.
  struct Progress {
    int64_t step = 0;
    int64_t minibatches = 0;
    int64_t samples = 0;  // of those
    bool over = false;    // no more work
  };
  virtual std::optional<Progress> progress() const { return std::nullopt; }
  // The scale of fp16 losses, if there is one.
  virtual std::optional<double> loss_scale() const = 0;

  // ---- What a strategy owns besides the step ----

  virtual DataShare share() const { return {}; }
  // The ranks that evaluate, save and finish together, in lockstep. nullptr: rank 0 does so alone.
  virtual comm::Communicator* team() const { return nullptr; }
  // Whether a step leaves work that later steps finish: drain() then affects what follows.
  virtual bool overlaps_steps() const { return false; }
  // Updates per batch of every replica: not 1 if servers count steps.
  virtual double steps_per_batch() const { return 1; }

  // Call it before begin(). `restored`: where this rank would start. Returns where the run started, which
  // matters for ranks restarted into a running job.
  virtual RunStart locate(const RunStart& restored) { return restored; }
  // Joins the run, which ends after `total_steps`. Collective; returns on all ranks at about the same time.
  virtual void begin(int64_t total_steps) { static_cast<void>(total_steps); }
  // Whether this rank was restarted into a running job; it then continues at progress().
  virtual bool rejoined() const { return false; }
  // Call it during long activities other than a step (an evaluation), so that peers do not consider this rank
  // dead.
  virtual void keep_alive() {}
  // A failure that ends the run: reports to the others what this rank knows of its cause.
  virtual void failed(const std::exception& error) { static_cast<void>(error); }
  // Ends the run. Collective; also for a run that never began.
  virtual RunEnd finish(int64_t peak_memory);

  // The model's outputs for one batch, in evaluation mode; empty if another rank has them.
  virtual std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& inputs) = 0;

  // Exchanges the weights for their moving average (train.ema), for forward(); the second call exchanges them
  // back. Collective, between steps, after drain(). Returns false, having done nothing, without an average.
  virtual bool exchange_average() { return false; }

  // Distribution of the model over the ranks, for people (`yoke ckpt ls`).
  virtual nlohmann::json layout() const { return nullptr; }
  // Everything a checkpoint holds of this rank: parameters, buffers, optimizer state. The tensors are live:
  // writing to them restores the state. Collective.
  virtual std::vector<StatePiece> state() = 0;
  // Updates the tensors of state() to one consistent version, if others hold the newest. Returns its step.
  virtual std::optional<int64_t> fetch_state() { return std::nullopt; }
  // The state was restored, at this step.
  virtual void restored(int64_t step) { static_cast<void>(step); }

  // What to compare this strategy with; nullptr: one device. `model` must outlive it and is used as scratch.
  virtual std::unique_ptr<Replay> replay(const models::Model& model,
                                         const optim::OptimizerOptions& optimizer) const;
};

}  // namespace yoke::parallel
