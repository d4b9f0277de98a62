#include "cli/torch/worker_options.h"

#include <algorithm>
#include <numeric>

#include "yoke/base/error.h"
#include "yoke/cluster/identity.h"
#include "yoke/cluster/launch_env.h"

namespace yoke::cli {

engine::WorkerOptions worker_options(const RunConfig& config) {
  engine::WorkerOptions options;
  options.model = config.model;
  options.optimizer = config.train.optimizer;
  options.compute = config.train.compute;
  options.batch_size = config.data.batch_size;
  options.accumulate = config.train.loop.accumulate;
  options.seed = config.train.loop.seed;
  options.tuning_file = cluster::cache_folder() / "tuning.json";
  options.ddp = config.ddp;
  options.zero = config.parallel.zero;
  options.slowdown = config.slowdown;
  if (config.parallel.sync == "threads") options.threads = std::max<int64_t>(1, config.parallel.data);
  options.pipeline.options = config.pipeline;
  options.pipeline.stages = static_cast<int>(config.parallel.pipeline);
  options.sync_batchnorm = config.train.loop.sync_batchnorm;
  return options;
}

engine::WorkerOptions worker_options(const RunConfig& config, World& world) {
  engine::WorkerOptions options = worker_options(config);
  bool pipeline = config.parallel.pipeline > 1;
  if (pipeline) options.pipeline.world = &world.comm();
  if (pipeline) {
    int workers = static_cast<int>(config.parallel.pipeline);
    if (!config.stage_replicas.empty())
      workers = std::accumulate(config.stage_replicas.begin(), config.stage_replicas.end(), 0);
    options.pipeline.copies = world.size() / workers;
    options.pipeline.replicas = config.stage_replicas;
  }
  if (!pipeline) options.replicas = world.size() > 1 ? &world.comm() : nullptr;
  options.local_rank = world.local_rank();
  options.local_ranks = world.job().identity().local_world_size;
  return options;
}

World join_world(const RunConfig& config) {
  comm::ConnectOptions connect;
  connect.backend = config.parallel.backend;
  connect.name = "data";
  bool gpu = config.train.compute.device != "cpu";
  const cluster::Identity identity = cluster::identify_from_environment();
  bool alone = identity.world_size == 1;
  if (gpu && !alone && connect.backend == "auto") connect.backend = "nccl";
  cluster::JoinOptions options;
  options.role = stage_role(config, identity.rank, identity.world_size);
  World world = join(options, connect);
  if (config.parallel.sync == "threads") {
    if (world.size() > 1)
      throw ConfigError("parallel.sync = threads is one process, and here are {} ranks.", world.size());
    return world;
  }
  if (!config.parallel.plan.empty()) return world;  // it says how many stages there are (follow_plan.h)
  int64_t stages = config.parallel.pipeline, data = config.parallel.data;
  if (stages > 1 && (world.size() % stages != 0 || (data > 0 && data * stages != world.size())))
    throw ConfigError(
        "parallel.pipeline = {}, parallel.data = {} with {} rank{}: start pipeline x data, with --nproc {} "
        "or a launcher.",
        stages, data, world.size(), world.size() == 1 ? "" : "s", stages * std::max<int64_t>(1, data));
  if (stages == 1 && data > 0 && data != world.size())
    throw ConfigError("parallel.data = {} with {} rank{}: start as many, with --nproc {} or a launcher.",
                      data, world.size(), world.size() == 1 ? "" : "s", data);
  return world;
}

}  // namespace yoke::cli
