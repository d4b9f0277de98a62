#include "yoke/engine/fit_budget.h"

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/base/units.h"
#include "yoke/compute/allocator.h"
#include "yoke/compute/device.h"
#include "yoke/engine/out_of_memory.h"
#include "yoke/engine/step_memory.h"

namespace yoke::engine {
namespace {

using Segments = std::vector<compute::Segment>;

// Plans tried after the smallest.
constexpr int kTries = 6;
// What is measured twice may differ by this much.
constexpr double kNoise = 1.02;

std::string size_text(int64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

// Copies of the state for checkpoints, and batches that wait: host memory, which is the budget's on the CPU
// alone.
int64_t memory_besides(Worker& worker, const WorkerOptions& options, int64_t input_bytes) {
  if (!worker.device.is_cpu()) return 0;
  HeldMemory held = held_memory(worker);
  return (options.copies_state ? held.weights + held.optimizer : 0) + options.batches_ahead * input_bytes;
}

class Fitting {
 public:
  Fitting(Worker& worker, const WorkerOptions& options, int64_t budget)
      : options_(options),
        probe_(worker, options),
        costs_(probe_.block_costs(options.batch_size)),
        budget_(budget - memory_besides(worker, options, costs_.front().input_bytes)) {
    if (worker.device.is_cpu()) compute::limit_kept_memory(std::max<int64_t>(1, budget_));
  }

  Segments segments() {
    start_small();
    // The formula knows activations only; what else there is comes from the last plan that was measured.
    for (int i = 0; i < kTries; ++i) {
      auto next = compute::segments_within(budget_ - unknown_, costs_);
      if (!next || compute::forward_calls(*next) >= compute::forward_calls(best_)) break;
      int64_t peak = measure(*next);
      if (peak > budget_) continue;
      best_ = *next;
      best_peak_ = peak;
    }
    return best_;
  }

  // Of the whole process.
  int64_t best_peak() const { return best_peak_ + besides(); }

  int64_t evaluation_batch() {
    int64_t batch = options_.batch_size;
    while (batch > 1 && !evaluation_fits(batch)) batch /= 2;
    return batch;
  }

 private:
  bool evaluation_fits(int64_t batch) {
    try {
      return probe_.evaluation_peak_bytes(batch) <= budget_;
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
      return false;
    }
  }

  int64_t measure(const Segments& segments) {
    int64_t peak = probe_.peak_bytes(segments, options_.batch_size);
    unknown_ = peak - compute::peak_bytes(segments, costs_);
    return peak;
  }

  // The two plans that may need least: few segments, or one for each block.
  void start_small() {
    best_ = compute::recompute_segments("blocks", costs_);
    probe_.peak_bytes(best_, options_.batch_size);  // libraries choose algorithms and allocate workspaces
    best_peak_ = measure(best_);
    Segments few = compute::recompute_segments(options_.compute.recompute, costs_);
    int64_t peak = measure(few);
    if (peak < best_peak_) {
      best_ = few;
      best_peak_ = peak;
    }
    if (best_peak_ > budget_) refuse();
  }

  int64_t besides() const { return *compute::recompute_budget(options_.compute.recompute) - budget_; }

  [[noreturn]] void refuse() const {
    auto enough = static_cast<int64_t>(kNoise * static_cast<double>(best_peak()));
    throw ConfigError(
        "train.recompute = {}: a step of this model with data.batch_size = {} needs at least {}, even with "
        "every block "
        "recomputed. Hint: budget:{}MB, or a smaller batch.",
        options_.compute.recompute, options_.batch_size, size_text(best_peak()), enough / 1'000'000 + 1);
  }

  const WorkerOptions& options_;
  StepProbe probe_;
  std::vector<compute::BlockCost> costs_;
  int64_t budget_;  // of steps
  Segments best_;
  int64_t best_peak_ = 0;
  int64_t unknown_ = 0;  // what compute::peak_bytes() leaves out
};

size_t recomputed(const Segments& segments) {
  size_t count = 0;
  for (const compute::Segment& one : segments) count += one.recompute ? one.end - one.begin : 0;
  return count;
}

}  // namespace

void check_budget(const WorkerOptions& options) {
  if (!compute::recompute_budget(options.compute.recompute)) return;
  auto refuse = [&](const char* with) {
    throw ConfigError("train.recompute = {} does not go with {}. Use blocks or sqrt.",
                      options.compute.recompute, with);
  };
  if (options.pipeline.stages > 1)
    refuse("a pipeline: how much a stage keeps depends on its micro-batches in flight");
  if (options.threads > 1) refuse("parallel.sync = threads: replicas share the process's memory");
  if (options.optimizer.optimizer == "lbfgs") refuse("train.optimizer = lbfgs, whose history grows");
  if (options.sync_batchnorm) refuse("train.sync_batchnorm: steps cannot be tried by one rank alone");
}

std::vector<compute::Segment> fit_recomputation(Worker& worker, const WorkerOptions& options) {
  std::optional<int64_t> budget = compute::recompute_budget(options.compute.recompute);
  if (!budget) {
    compute::limit_kept_memory(0);
    return compute::recompute_segments(options.compute.recompute,
                                       std::vector<compute::BlockCost>(worker.model.blocks.size()));
  }
  Fitting fitting(worker, options, *budget);
  Segments segments = fitting.segments();
  worker.evaluation_batch = fitting.evaluation_batch();
  log::info("train.recompute = {}: {} of {} blocks are computed again, a step peaks at {}",
            options.compute.recompute, recomputed(segments), worker.model.blocks.size(),
            size_text(fitting.best_peak()));
  if (worker.device.is_cpu()) compute::limit_kept_memory(*budget);
  compute::release_freed_memory(worker.device);
  compute::reset_peak_memory(worker.device);
  return segments;
}

}  // namespace yoke::engine
