#include "cli/torch/worker_options.h"

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
  if (config.parallel.sync == "threads") options.threads = std::max<int64_t>(1, config.parallel.data);
  options.sync_batchnorm = config.train.loop.sync_batchnorm;
  return options;
}

engine::WorkerOptions worker_options(const RunConfig& config, World& world) {
  engine::WorkerOptions options = worker_options(config);
  options.replicas = world.size() > 1 ? &world.comm() : nullptr;
  options.local_rank = world.local_rank();
  options.local_ranks = world.job().identity().local_world_size;
  return options;
}

World join_world(const RunConfig& config) {
  comm::ConnectOptions connect;
  connect.backend = config.parallel.backend;
  connect.name = "data";
  bool gpu = config.train.compute.device != "cpu";
  bool alone = cluster::identify_from_environment().world_size == 1;
  if (gpu && !alone && connect.backend == "auto") connect.backend = "nccl";
  World world = join({}, connect);
  if (config.parallel.sync == "threads" && world.size() > 1)
    throw ConfigError("parallel.sync = threads is one process, and here are {} ranks.", world.size());
  if (config.parallel.sync != "threads" && config.parallel.data > 0 && config.parallel.data != world.size())
    throw ConfigError("parallel.data = {} with {} rank{}: start as many, with --nproc {} or a launcher.",
                      config.parallel.data, world.size(), world.size() == 1 ? "" : "s", config.parallel.data);
  return world;
}

}  // namespace yoke::cli
