// A run from epoch to epoch of its membership (docs/design/elastic.md). Where ranks cannot come and go there
// is one epoch, and what is said of elastic jobs here does nothing.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/run_config.h"
#include "cli/torch/train_resume.h"
#include "yoke/base/deadline.h"
#include "yoke/base/error.h"
#include "yoke/engine/engine.h"
#include "yoke/engine/shard_keeper.h"
#include "yoke/engine/stop_signal.h"
#include "yoke/engine/survivor.h"
#include "yoke/metrics/record.h"
#include "yoke/metrics/summary.h"
#include "yoke/parallel/membership.h"

namespace yoke::cli {

class Epochs {
 public:
  // After join_job(). Both arguments must outlive it.
  Epochs(Configuration& configuration, parallel::Membership& member);

  // Calls `train` once per epoch, with the layout that the configuration asks for or, in a pipeline, as much
  // of it as there are ranks for; until it returns without continue_later(), or this rank leaves (0). After a
  // CommError of `train` the ranks that are left regroup. Throws CommError if they are too few, or if this
  // rank was evicted.
  int run(const std::function<int()>& train);

  // ---- called by `train` ----
  // Samples of a global batch (elastic.batch).
  int64_t global_batch() const;
  // What the ranks of this epoch agreed to continue from; empty: nobody has trained yet. If shards are lost
  // it is the last checkpoint. Collective. Throws CheckpointError if there is none.
  Resume take_resume(const TrainArguments& arguments);
  // Where this rank has no state yet: it follows the others until it has (engine/follower.h). Before anything
  // uses the worker's strategy.
  void follow(engine::Worker& worker);
  // As cli::loop_plan(), with the learning rate and stops of this epoch.
  engine::LoopPlan loop_plan(const engine::Worker& worker, const data::Loader& loader,
                             const engine::Progress& done);
  // From now on there is a state to keep, and stop signals are heard. The engine is at a step boundary, and
  // has what `resume` gave it.
  void attach_to(engine::Engine& engine, engine::Worker& worker, data::Loader& loader, Resume& resume);
  // Runs a part of `train`; if it ends with an error after which ranks regroup, keeps the state after the
  // last finished step.
  template <class Work>
  auto keeping(const Work& work) {
    try {
      return work();
    } catch (const Error& error) {
      if (elastic_ && regroups_after(error)) keep();
      throw;
    }
  }
  // Whether all ranks have agreed to regroup: `train` returns, and is called again.
  bool continue_after(const engine::Outcome& outcome);
  void put(metrics::Summary& summary);
  // Records of the last steps before this epoch; the rank that wrote them may have died before it could.
  const std::vector<metrics::Record>& recent() const { return recent_; }

 private:
  class FirstStep;
  // A lost rank is a failed peer, and a failed rendezvous where the others are connecting to it.
  static bool regroups_after(const Error& error) {
    return error.code() == ExitCode::kPeerFailed || error.code() == ExitCode::kRendezvous;
  }
  void note_end();
  // Collective, through the coordinator.
  std::vector<std::string> texts_of_all(const std::string& meeting, const std::string& own) const;
  int agreed_stop(int largest, bool may_wait);
  std::unique_ptr<metrics::Sink> first_step();
  void lock(Resume& resume) const;
  void keep();
  void agree();
  bool may_follow() const;
  bool follows() const;
  void share_among_all();
  void set_shares();
  void forget_transfer();
  std::string who_continues() const;  // "3 ranks continue"
  void meet();
  void lay_out();
  void share_records(const std::vector<std::string>& of_all);
  void agree_on_shards();
  void keep_shards(engine::Engine& engine, engine::Worker& worker, const data::Loader& loader);
  Resume resume_shards();
  Resume resume_checkpoint(const TrainArguments& arguments);
  bool written_by_this_job(const Resume& resume) const;
  void hand_over_shards();
  void count_copies();

  Configuration& configuration_;
  const RunConfig& config_;
  parallel::Membership& member_;
  const bool elastic_;
  const bool sharded_;                          // also over the stages of a pipeline
  const parallel::Choices asked_;               // the layout of an epoch may be smaller
  int64_t replicas_at_start_;                   // of the job: the global batch is theirs
  std::optional<engine::StopSignals> signals_;  // across epochs
  std::optional<checkpoint::State> kept_;
  bool kept_is_coming_ = false;  // it has no values yet (transfer_)
  std::vector<metrics::Record> recent_;
  engine::StepKeeper* keeper_ = nullptr;
  std::unique_ptr<engine::StateTransfer> transfer_;  // of this epoch
  std::vector<int> followers_;                       // ranks whose batches do not count yet
  engine::Follower* follower_ = nullptr;
  data::Loader* loader_ = nullptr;
  // The same of shards.
  engine::Holdings held_;
  engine::ShardChoice choice_;
  engine::ShardKeeper* shard_keeper_ = nullptr;
  const double started_;  // seconds since 1970
  engine::Engine* engine_ = nullptr;
  bool continues_ = false;
  bool leaves_ = false;
  std::optional<Deadline> leaves_at_;  // set once the others know of its signal
  int fruitless_ = 0;                  // epochs in a row without a finished step
  double stopped_at_ = 0;   // now_seconds(), of the last end of an epoch; 0: a step was finished since
  int64_t unfinished_ = 0;  // the step that was in flight then; 0: none
  metrics::ElasticSummary summary_;
};

}  // namespace yoke::cli
