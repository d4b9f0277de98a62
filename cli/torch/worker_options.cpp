#include "cli/torch/worker_options.h"

#include <algorithm>

#include "cli/run_checks.h"
#include "yoke/cluster/identity.h"
#include "yoke/cluster/launch_env.h"

namespace yoke::cli {

engine::WorkerOptions worker_options(const RunConfig& config) {
  engine::WorkerOptions options;
  static_cast<parallel::Choices&>(options) = config;
  options.model = config.model;
  options.optimizer = config.train.optimizer;
  options.compute = config.train.compute;
  options.batch_size = config.data.batch_size;
  options.seq_len = config.data.seq_len;
  options.copies_state = config.checkpoint.every_steps > 0;
  options.batches_ahead = config.data.workers > 0 ? config.data.prefetch : 0;
  options.accumulate = config.train.loop.accumulate;
  options.equal_batches = config.data.drop_last;
  options.skip_non_finite = config.train.loop.non_finite == "skip";
  options.seed = config.train.loop.seed;
  options.tuning_file = cluster::cache_folder() / "tuning.json";
  options.sync_batchnorm = config.train.loop.sync_batchnorm;
  return options;
}

engine::WorkerOptions worker_options(const RunConfig& config, parallel::Membership& member,
                                     const std::string& init) {
  engine::WorkerOptions options = worker_options(config);
  options.links = parallel::links_of(member);
  options.local_rank = member.job().identity().local_rank;
  options.local_ranks = member.job().identity().local_world_size;
  options.init = init;
  return options;
}

parallel::Membership join_job(RunConfig& config) {
  config.out.dir = run_folder(config);
  parallel::Membership member(join_request(config));
  check_workers(config, member.workers());
  return member;
}

}  // namespace yoke::cli
