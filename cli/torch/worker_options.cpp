#include "cli/torch/worker_options.h"

#include <algorithm>

#include "cli/ps_server.h"
#include "cli/run_checks.h"
#include "yoke/cluster/identity.h"
#include "yoke/cluster/launch_env.h"

namespace yoke::cli {

engine::WorkerOptions worker_options(const RunConfig& config) {
  engine::WorkerOptions options;
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
  options.ddp = config.ddp;
  options.zero = config.parallel.zero;
  options.slowdown = config.slowdown;
  if (config.parallel.sync == "threads") options.threads = std::max<int64_t>(1, config.parallel.data);
  options.pipeline.options = config.pipeline;
  options.pipeline.stages = static_cast<int>(config.parallel.pipeline);
  options.pipeline.replicas = config.stage_replicas;
  options.sync_batchnorm = config.train.loop.sync_batchnorm;
  return options;
}

engine::WorkerOptions worker_options(const RunConfig& config, World& world) {
  engine::WorkerOptions options = engine::on_ranks(worker_options(config), world.comm());
  options.local_rank = world.local_rank();
  options.local_ranks = world.job().identity().local_world_size;
  return options;
}

parallel::PsSetup ps_setup(const RunConfig& config, int workers) {
  parallel::PsSetup setup;
  setup.workers = workers;
  setup.ps = config.ps;
  setup.slowdown = config.slowdown;
  setup.policy = policy_of(config, workers);
  setup.timeout = config.ps.timeout;
  return setup;
}

World join_world(const RunConfig& config) {
  comm::ConnectOptions connect;
  connect.backend = config.parallel.backend;
  connect.name = "data";
  connect.measures_links = !config.train.compute.deterministic;
  bool gpu = config.train.compute.device != "cpu";
  bool alone = cluster::identify_from_environment().world_size == 1;
  if (gpu && !alone && connect.backend == "auto") connect.backend = "nccl";
  World world = join({}, connect);
  check_workers(config, world.size());
  return world;
}

}  // namespace yoke::cli
