// The loop: for each step a batch, a strategy, and those who watch. Nothing else.
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
  // Where somebody else counts steps (Strategy::progress), epochs are counted from here, in batches of all.
  double batches_per_epoch = 1;
  int64_t first_step = 0;
  double first_epoch = 0;
  int64_t accumulate = 1;
  int64_t replicas = 1;  // each with batches of its own
  int64_t log_every = 10;
  bool skip_non_finite = false;   // every step's gradients are checked; else a NaN stops the run
  bool wait_for_loss = true;      // read the loss of every step (CPU); else only of logged ones
  int64_t tokens_per_sample = 0;  // 0: speed is told in samples only
  std::function<double(int64_t step)> learning_rate;
  std::function<int64_t()> peak_memory;
};

// Saves the state of the run after `step` steps. `must` is set at the end of the run and when it was told to
// stop.
struct SaveRequest {
  int64_t step = 0;
  int64_t samples = 0;
  double loss = 0;  // Outcome::final_loss so far
  bool must = false;
};

struct Outcome {
  int64_t steps = 0;  // done in total, those before a resume included
  int64_t samples = 0;
  int64_t own_samples = 0;  // of these, done by this run since it was started
  double epochs = 0;
  double final_loss = 0;                 // of the last logged steps, skipped ones left out
  std::optional<Evaluation> evaluation;  // the last one
  std::vector<double> step_seconds;      // of this process
  double seconds = 0;                    // of this process, the loop alone
  int64_t skipped = 0;                   // steps without an update
  int stopped_by_signal = 0;             // 0: ran to its end
};

class Engine {
 public:
  // All must outlive the engine.
  Engine(parallel::Strategy& strategy, data::Loader& loader, LoopPlan plan);

  void attach(std::unique_ptr<metrics::Sink> sink) { sinks_.push_back(std::move(sink)); }
  void attach_trace(metrics::Trace* trace) { trace_ = trace; }
  // Called in every step with this rank's samples and how long it computed on them.
  void attach_balance(std::function<void(int64_t samples, double seconds)> balance) {
    balance_ = std::move(balance);
  }
  // Called after each epoch and at the end.
  // `evaluate` gives nothing when it was interrupted.
  void attach_evaluation(std::function<std::optional<Evaluation>()> evaluate) {
    evaluate_ = std::move(evaluate);
  }
  // Called after every step; decides itself whether it is time, and says whether it saved.
  // `due(step)` tells beforehand, so that the gradients of that step are checked.
  void attach_checkpoints(std::function<bool(int64_t step)> due,
                          std::function<void(const SaveRequest&)> save);
  // Called when memory runs out, with what the engine was doing ("in step 3"): gives what run() throws
  // instead.
  void attach_memory_report(
      std::function<OutOfMemory(const std::exception& error, const std::string& doing)> report) {
    memory_report_ = std::move(report);
  }
  // Steps and samples done before, from a checkpoint, and the loss then (NaN: none is known).
  void resume_at(int64_t step, int64_t samples, double loss = std::numeric_limits<double>::quiet_NaN());

  // Runs until the planned steps are done or a signal asks to stop (where StopSignals are installed,
  // stop_signal.h). Throws OutOfMemory, and ConfigError when the loss or the gradients stop being finite and
  // the policy is to stop, and when they stay so while steps are skipped or the loss scale falls; nothing is
  // saved after that.
  Outcome run(const metrics::RunInfo& info);

 private:
  struct StepLoss {
    torch::Tensor sum;
    bool finite = true;
  };
  Outcome run_to_the_end(const metrics::RunInfo& info);
  void train_step();
  StepLoss compute_gradients(metrics::TimeSplit& split);
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

  parallel::Strategy& strategy_;
  data::Loader& loader_;
  LoopPlan plan_;
  std::vector<std::unique_ptr<metrics::Sink>> sinks_;
  metrics::Trace* trace_ = nullptr;
  std::function<std::optional<Evaluation>()> evaluate_;
  std::function<OutOfMemory(const std::exception&, const std::string&)> memory_report_;
  bool evaluating_ = false;
  std::function<void(int64_t, double)> balance_;
  std::function<bool(int64_t)> checkpoint_due_;
  std::function<void(const SaveRequest&)> save_;

  Stopwatch since_start_;
  int64_t step_ = 0;
  int64_t step_before_ = 0;  // this one
  double epoch_before_ = 0;
  int64_t samples_ = 0;
  int64_t samples_at_start_ = 0;
  bool over_ = false;        // somebody else says so
  int64_t own_samples_ = 0;  // of this rank, in this step
  Outcome outcome_;
  int stop_signal_ = 0;  // that all ranks know of
  bool told_stop_ = false;
  int64_t not_updated_ = 0;  // steps in a row
  bool has_loss_ = false;
  int64_t last_evaluated_ = -1;
  std::optional<double> grad_norm_;
  // Since the last record:
  std::vector<torch::Tensor> losses_;
  metrics::TimeSplit split_;
  std::optional<double> comm_seconds_;  // where ranks communicate
  Stopwatch since_record_;
  double pause_seconds_ = 0;  // evaluation and checkpoint hand-over: not part of the speed
  int64_t samples_at_record_ = 0;
};

}  // namespace yoke::engine
