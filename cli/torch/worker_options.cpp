#include "cli/torch/worker_options.h"

#include <algorithm>

#include "cli/run_checks.h"
#include "yoke/base/log.h"
#include "yoke/cluster/identity.h"
#include "yoke/cluster/launch_env.h"
#include "yoke/models/model.h"
#include "yoke/parallel/fit.h"

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
  options.label_smoothing = config.train.loop.label_smoothing;
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

namespace {

// train.accumulate_tokens in batches, for as many replicas as there are.
void accumulate_by_tokens(RunConfig& config, const parallel::Choices& layout,
                          const parallel::Membership& member) {
  const int64_t wanted = config.train.loop.accumulate_tokens;
  if (wanted == 0) return;
  const int64_t replicas = std::max<int64_t>(parallel::mesh_of(layout, member.workers()).data, 1);
  const int64_t length =
      config.data.seq_len > 0 ? config.data.seq_len : models::lay_out(config.model).sample.shape.at(0);
  const int64_t batch = config.data.batch_size * length * replicas;
  config.train.loop.accumulate = (wanted + batch - 1) / batch;
  if (!member.first()) return;
  const int64_t tokens = config.train.loop.accumulate * batch;
  log::info("train.accumulate_tokens = {}: {} batches of {} tokens over {} replica{}, {} tokens a step",
            wanted, config.train.loop.accumulate, batch, replicas, replicas == 1 ? "" : "s", tokens);
}

}  // namespace

parallel::Membership join_job(RunConfig& config, std::function<void()> prepare) {
  config.out.dir = run_folder(config);
  parallel::JoinRequest request = join_request(config);
  request.prepare = std::move(prepare);
  parallel::Membership member(request);
  check_workers(config, member.workers());
  accumulate_by_tokens(config, layout_on(config, member.workers()), member);
  return member;
}

}  // namespace yoke::cli
