// A run from epoch to epoch of its membership (docs/design/elastic.md). Where ranks cannot come and go there
// is one epoch, and what is said of elastic jobs here does nothing.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cli/run_config.h"
#include "cli/torch/train_resume.h"
#include "yoke/base/error.h"
#include "yoke/engine/engine.h"
#include "yoke/engine/stop_signal.h"
#include "yoke/engine/survivor.h"
#include "yoke/metrics/summary.h"
#include "yoke/parallel/membership.h"

namespace yoke::cli {

class Epochs {
 public:
  // After join_job(). Both arguments must outlive it.
  Epochs(Configuration& configuration, parallel::Membership& member);

  // Calls `train` once per epoch, until it returns without continue_later(), or this rank leaves (0). After a
  // CommError of `train` the ranks that are left regroup. Throws CommError if they are too few, or if this
  // rank was evicted.
  int run(const std::function<int()>& train);

  // ---- called by `train` ----
  // Samples of a global batch (elastic.batch).
  int64_t global_batch() const;
  // What the ranks of this epoch agreed to continue from; empty: nobody has trained yet.
  Resume take_resume();
  // As cli::loop_plan(), with the learning rate and stops of this epoch.
  engine::LoopPlan loop_plan(const engine::Worker& worker, const data::Loader& loader,
                             const engine::Progress& done) const;
  // From now on there is a state to keep, and stop signals are heard. The engine is at a step boundary, and
  // has what `resume` gave it.
  void attach_to(engine::Engine& engine, engine::Worker& worker, const data::Loader& loader, Resume& resume);
  // Runs a part of `train`; if it throws CommError, keeps the state after the last finished step.
  template <class Work>
  auto keeping(const Work& work) {
    try {
      return work();
    } catch (const CommError&) {
      if (elastic_) keep();
      throw;
    }
  }
  // Whether all ranks have agreed to regroup: `train` returns, and is called again.
  bool continue_after(const engine::Outcome& outcome);
  void put(metrics::Summary& summary) const;

 private:
  class FirstStep;
  void note_end();
  std::vector<std::string> signals_of_all(const std::string& meeting) const;  // collective
  void lock(Resume& resume) const;
  void keep();
  void agree();

  Configuration& configuration_;
  const RunConfig& config_;
  parallel::Membership& member_;
  const bool elastic_;
  const int64_t ranks_at_start_;
  std::optional<engine::StopSignals> signals_;  // across epochs
  std::optional<checkpoint::State> kept_;
  engine::StepKeeper* keeper_ = nullptr;
  engine::Engine* engine_ = nullptr;
  bool continues_ = false;
  bool leaves_ = false;
  int fruitless_ = 0;       // epochs in a row without a finished step
  double stopped_at_ = 0;   // now_seconds(), of the last end of an epoch; 0: a step was finished since
  int64_t unfinished_ = 0;  // the step that was in flight then; 0: none
  metrics::ElasticSummary summary_;
};

}  // namespace yoke::cli
