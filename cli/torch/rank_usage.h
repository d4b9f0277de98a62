// What of summary.json every rank contributes to: memory, traffic, the hash of the parameters.
#pragma once

#include "cli/run_config.h"
#include "yoke/engine/engine.h"
#include "yoke/engine/worker.h"
#include "yoke/metrics/summary.h"
#include "yoke/parallel/membership.h"

namespace yoke::cli {

class RankUsage {
 public:
  RankUsage();  // before the model is built

  // The steps begin: what was sent so far is not theirs.
  void begin(const parallel::Strategy& strategy) { before_ = strategy.traffic(); }
  // The steps have ended: gathers what each rank has sent in them and what it holds, ends the strategy
  // (Strategy::finish()), and hashes the parameters. Collective where ranks are in lockstep. Throws
  // ConfigError if a budget of memory was not kept.
  parallel::RunEnd end(engine::Worker& worker, const RunConfig& config, const engine::Outcome& outcome);

  // `peaks`: of each rank, as end() returned them.
  void put(metrics::Summary& summary, const RunConfig& config, const engine::LoopPlan& plan, int workers,
           std::vector<int64_t> peaks) const;

 private:
  void gather(engine::Worker& worker, const RunConfig& config, int64_t steps, int64_t peak_memory);

  int64_t process_bytes_;
  parallel::Traffic before_;
  std::vector<metrics::MemoryUse> memory_;  // by rank
  std::optional<metrics::AxisBytes> sent_;
  std::string hash_;
};

}  // namespace yoke::cli
