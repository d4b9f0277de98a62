// The training loop: for each step a batch, a strategy, and observers. Nothing else. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/data/loader.h"
#include "yoke/engine/evaluate.h"
#include "yoke/engine/out_of_memory.h"
#include "yoke/metrics/sink.h"
#include "yoke/metrics/trace.h"
#include "yoke/parallel/strategy.h"

namespace yoke::engine {

struct LoopPlan {
  int64_t total_steps = 0;
  // If the strategy counts steps itself (Strategy::progress), epochs are derived from this number of global
  // batches.
  double batches_per_epoch = 1;
  int64_t first_step = 0;
  double first_epoch = 0;
  data::Position first_position{};  // of batches that are handed out
  int64_t accumulate = 1;
  int64_t replicas = 1;  // each with its own batches
  int64_t log_every = 10;
  bool skip_non_finite = false;   // check the gradients of every step; otherwise a NaN ends the run
  bool wait_for_loss = true;      // read the loss of every step (CPU); otherwise only of logged ones
  int64_t tokens_per_sample = 0;  // 0: report speed in samples only
  std::function<double(int64_t step)> learning_rate;
  std::function<int64_t()> peak_memory;
  // Whether this rank wants all to stop after this step: a signal, or another reason (> 0). Empty: the stop
  // signals. All ranks call agreed_stop() with the largest of them; it returns why the run stops. If it may
  // wait (there are more steps), 0: it goes on, and asks again once a rank wants it.
  std::function<int()> wanted_stop{};
  std::function<int(int largest, bool may_wait)> agreed_stop{};
};

// The state of a run after a step.
struct Finished {
  int64_t step = 0;
  int64_t started = 0;  // the step that has begun; equal between two steps
  int64_t samples = 0;
  double loss = 0;  // Outcome::final_loss so far
};

// Request to save the state of the run after `step` steps. `must`: at the end of the run and after a stop
// signal.
struct SaveRequest {
  int64_t step = 0;
  int64_t samples = 0;
  double loss = 0;  // Outcome::final_loss so far
  bool must = false;
};

struct Outcome {
  int64_t steps = 0;  // in total, including those before a resume
  int64_t samples = 0;
  int64_t own_samples = 0;  // of these, in this process
  double epochs = 0;
  double final_loss = 0;                 // mean over the last logged steps, without skipped ones
  std::optional<Evaluation> evaluation;  // the last one
  std::vector<double> step_seconds;      // of this process
  double seconds = 0;                    // of this process, the loop only
  int64_t skipped = 0;                   // steps without an update
  int stopped_by_signal = 0;             // 0: ran to the end
};

class Engine {
 public:
  // All arguments must outlive the engine.
  Engine(parallel::Strategy& strategy, data::Loader& loader, LoopPlan plan);

  void attach(std::unique_ptr<metrics::Sink> sink) { sinks_.push_back(std::move(sink)); }
  void attach_trace(metrics::Trace* trace) { trace_ = trace; }
  // Called in every step with this rank's number of samples and its compute time in seconds.
  void attach_balance(std::function<void(int64_t samples, double seconds)> balance) {
    balance_ = std::move(balance);
  }
  // Called in every step when all ranks have given their gradients to it, before parameters and optimizer
  // state change (or not, if the step is skipped).
  void attach_before_update(std::function<void()> call) { before_update_ = std::move(call); }
  // Called after each epoch and at the end. `evaluate` returns nothing if it was interrupted.
  void attach_evaluation(std::function<std::optional<Evaluation>()> evaluate) {
    evaluate_ = std::move(evaluate);
  }
  // `save` is called after every step and decides itself whether to save. `due(step)` says so in advance, so
  // that the gradients of that step are checked.
  void attach_checkpoints(std::function<bool(int64_t step)> due,
                          std::function<void(const SaveRequest&)> save);
  // Called when memory runs out, with the current activity ("in step 3"); run() throws what it returns.
  void attach_memory_report(
      std::function<OutOfMemory(const std::exception& error, const std::string& doing)> report) {
    memory_report_ = std::move(report);
  }
  // Steps and samples before this run, from a checkpoint, and the loss at that point (NaN: unknown).
  void resume_at(int64_t step, int64_t samples, double loss = std::numeric_limits<double>::quiet_NaN());

  // Runs until the planned steps are done or a stop signal arrives (if StopSignals are installed,
  // stop_signal.h). Throws OutOfMemory; throws ConfigError if loss or gradients become non-finite and the
  // policy is to stop, or if they stay so while steps are skipped or the loss scale falls. Nothing is saved
  // after that.
  Outcome run(const metrics::RunInfo& info);

  // The last step whose update is done, also if run() has thrown.
  const Finished& finished() const { return finished_; }

 private:
  struct StepLoss {
    torch::Tensor sum;
    bool finite = true;
  };
  Outcome run_to_the_end(const metrics::RunInfo& info);
  void train_step();
  StepLoss compute_gradients(metrics::TimeSplit& split);
  bool measures_norm() const;
  bool take_handed_out();
  void tell_upcoming();
  bool commit(const StepLoss& loss, metrics::TimeSplit& split);
  bool handle_non_finite(const char* what, int64_t step);
  bool handle_overflow();
  void tell_that_it_stops(int64_t done, double seconds);
  void note_loss(double loss);
  double mean_loss() const;
  double epoch() const;
  void log_step();
  void evaluate_now();
  bool epoch_ended() const;
  bool passed(int64_t every) const;
  bool due_since_last_step() const;
  void count_step();
  int wanted_stop() const;
  int agreed_stop(bool may_wait);

  parallel::Strategy& strategy_;
  data::Loader& loader_;
  LoopPlan plan_;
  std::vector<std::unique_ptr<metrics::Sink>> sinks_;
  metrics::Trace* trace_ = nullptr;
  std::function<std::optional<Evaluation>()> evaluate_;
  std::function<OutOfMemory(const std::exception&, const std::string&)> memory_report_;
  bool evaluating_ = false;
  std::function<void(int64_t, double)> balance_;
  std::function<void()> before_update_;
  std::function<bool(int64_t)> checkpoint_due_;
  std::function<void(const SaveRequest&)> save_;

  Stopwatch since_start_;
  int64_t step_ = 0;
  int64_t step_before_ = 0;  // before the current step
  double epoch_before_ = 0;
  int64_t samples_ = 0;
  int64_t samples_at_start_ = 0;
  bool over_ = false;        // the strategy has ended the run
  int64_t own_samples_ = 0;  // of this rank in this step
  Outcome outcome_;
  Finished finished_;
  int stop_signal_ = 0;  // agreed on by all ranks
  bool told_stop_ = false;
  int64_t not_updated_ = 0;  // consecutive steps without an update
  bool has_loss_ = false;
  int64_t last_evaluated_ = -1;
  std::optional<double> grad_norm_;
  // Since the last record:
  std::vector<torch::Tensor> losses_;
  metrics::TimeSplit split_;
  std::optional<double> comm_seconds_;  // if ranks communicate
  Stopwatch since_record_;
  double pause_seconds_ = 0;  // evaluation and checkpointing: excluded from the speed
  int64_t samples_at_record_ = 0;
};

}  // namespace yoke::engine
