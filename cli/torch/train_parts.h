// Parts of train.cpp.
#pragma once

#include <memory>
#include <optional>

#include "cli/command_line.h"
#include "cli/run_config.h"
#include "cli/torch/data_sets.h"
#include "cli/torch/train_resume.h"
#include "yoke/data/loader.h"
#include "yoke/engine/engine.h"
#include "yoke/engine/run_state.h"
#include "yoke/engine/speed_split.h"
#include "yoke/engine/worker.h"
#include "yoke/parallel/membership.h"

namespace yoke::cli {

// Takes two steps alone, on synthetic samples, so that the first one with others is as fast as theirs: it
// selects kernels and touches memory, which takes longer than a step. Not where a rank holds a part of the
// model alone, because the whole may not fit. What fails here fails again, and is reported, in the job.
void warm_up(const RunConfig& config);

// Logs settings that are probably not intended.
void give_hints(const RunConfig& config);

// The data that this rank reads, as its strategy's share.
class RunData {
 public:
  // `global_batch`: samples; 0: data.batch_size of every replica.
  RunData(const RunConfig& config, const engine::Worker& worker, DataSets& sets, int64_t global_batch = 0);
  data::Loader& loader() { return *loader_; }
  std::shared_ptr<const data::Dataset> open(data::Split split) const;

 private:
  const RunConfig& config_;
  const engine::Worker& worker_;
  DataSets& sets_;
  std::shared_ptr<const data::Dataset> train_set_;
  std::unique_ptr<data::Loader> loader_;
};

// Restores what `resume` found, and determines where the run starts.
engine::Progress locate_start(const Resume& resume, engine::Worker& worker, data::Loader& loader);

// The loop from `done` on, with the loader at its position.
// `replicas_of_rate`: for the linear scaling rule of the learning rate; 0: those of the strategy.
engine::LoopPlan loop_plan(const RunConfig& config, const engine::Worker& worker, const data::Loader& loader,
                           const engine::Progress& done, int64_t replicas_of_rate = 0);

// Joins the run: sets engine and loader to its position.
void begin(const RunConfig& config, engine::Engine& engine, engine::Worker& worker, data::Loader& loader,
           const engine::LoopPlan& plan, const engine::Progress& start);

// Everything the engine calls besides the strategy. All arguments must outlive the engine.
class Attachments {
 public:
  Attachments(const Configuration& configuration, engine::Worker& worker, RunData& data,
              const engine::Progress& start, parallel::Membership& member);
  void attach_to(engine::Engine& engine);
  checkpoint::Writer& writer() { return writer_; }

 private:
  void save(const engine::SaveRequest& request);
  checkpoint::State state_at(engine::Progress at);
  bool acts() const;  // takes part in evaluations and checkpoints

  const Configuration& configuration_;
  const RunConfig& config_;
  engine::Worker& worker_;
  RunData& data_;
  const engine::Progress& start_;
  parallel::Membership& member_;
  std::shared_ptr<const data::Dataset> test_set_;
  std::optional<engine::SpeedSplit> speeds_;
  checkpoint::Writer writer_;
};

// Runs the engine. A failure is reported to the other ranks while the worker still exists, and names the last
// checkpoint.
engine::Outcome run_engine(engine::Engine& engine, const metrics::RunInfo& info, engine::Worker& worker,
                           Attachments& attached, parallel::Membership& member,
                           const std::filesystem::path& out);

}  // namespace yoke::cli
