#include "yoke/engine/fit_budget.h"

#include <algorithm>
#include <limits>
#include <optional>

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

// A plan whose estimate exceeds the budget by more than this is not tried: the machine may not have the
// memory.
constexpr double kHopeless = 1.1;
// Repeated measurements may differ by this much.
constexpr double kNoise = 1.02;

std::string size_text(int64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

// Copies of the state for checkpoints, and prefetched batches: host memory, which counts on the CPU only.
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

  // Estimates omit what is not an activation (gradients of logits, workspaces); so measured steps decide how
  // many blocks can be kept, and the estimate only which.
  Segments segments() {
    start_small();
    size_t low = compute::kept_blocks(best_), high = costs_.size();
    while (low < high) {
      size_t middle = (low + high + 1) / 2;
      Segments next = compute::segments_keeping(middle, costs_);
      std::optional<int64_t> peak = measure(next);
      if (peak && *peak <= budget_) {
        best_ = next;
        best_peak_ = *peak;
        low = middle;
      } else {
        high = middle - 1;
      }
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

  // Empty if it needs more than there can be.
  std::optional<int64_t> measure(const Segments& segments) {
    const int64_t estimate = compute::peak_bytes(segments, costs_) + unknown_;
    if (static_cast<double>(estimate) > kHopeless * static_cast<double>(budget_)) return std::nullopt;
    try {
      return measure_small(segments);
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
      return std::nullopt;
    }
  }

  int64_t measure_small(const Segments& segments) {
    int64_t peak = probe_.peak_bytes(segments, options_.batch_size);
    unknown_ = std::min(unknown_, peak - compute::peak_bytes(segments, costs_));
    return peak;
  }

  // The two plans that may need least: few segments, or one per block.
  void start_small() {
    best_ = compute::recompute_segments("blocks", costs_);
    probe_.peak_bytes(best_, options_.batch_size);  // libraries select algorithms and allocate workspaces
    best_peak_ = measure_small(best_);
    Segments few = compute::recompute_segments(options_.compute.recompute, costs_);
    int64_t peak = measure_small(few);
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
  int64_t budget_;  // for steps
  Segments best_;
  int64_t best_peak_ = 0;
  // Memory that compute::peak_bytes() omits: the smallest observed.
  int64_t unknown_ = std::numeric_limits<int64_t>::max();
};

}  // namespace

void check_budget(const WorkerOptions& options) {
  if (!compute::recompute_budget(options.compute.recompute)) return;
  auto refuse = [&](const char* with) {
    throw ConfigError("train.recompute = {} cannot be combined with {}. Use blocks or sqrt.",
                      options.compute.recompute, with);
  };
  if (options.parallel.pipeline > 1)
    refuse("a pipeline: how much a stage keeps depends on its micro-batches in flight");
  if (options.replicas_in_process() > 1)
    refuse("parallel.sync = threads: replicas share the process's memory");
  if (options.optimizer.optimizer == "lbfgs") refuse("train.optimizer = lbfgs, whose history grows");
  if (options.sync_batchnorm) refuse("train.sync_batchnorm: a rank cannot run trial steps on its own");
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
            options.compute.recompute, worker.model.blocks.size() - compute::kept_blocks(segments),
            worker.model.blocks.size(), size_text(fitting.best_peak()));
  if (worker.device.is_cpu()) compute::limit_kept_memory(*budget);
  compute::release_freed_memory(worker.device);
  compute::reset_peak_memory(worker.device);
  return segments;
}

}  // namespace yoke::engine
