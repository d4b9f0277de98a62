// yoke train with parameter servers: the same story for a worker. The servers are other ranks
// (cli/ps_server.cpp).
#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/ps_server.h"
#include "cli/torch/train_output.h"
#include "cli/torch/train_parts.h"
#include "cli/torch/worker_options.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/log.h"
#include "yoke/cluster/identity.h"
#include "yoke/cluster/world.h"
#include "yoke/compute/device.h"
#include "yoke/engine/parameter_hash.h"
#include "yoke/engine/run_state.h"
#include "yoke/engine/stop_signal.h"
#include "yoke/parallel/ps/ps_strategy.h"
#include "yoke/ps/connect.h"

namespace yoke::cli {
namespace {

// Steps are updates of the servers.
void count_in_updates(engine::LoopPlan& plan, const RunConfig& config, int workers) {
  plan.total_steps = total_updates(config, workers, plan.batches_per_epoch);
  auto k = static_cast<double>(plan::effective_k(policy_of(config, workers)));
  plan.batches_per_epoch *= workers / k / static_cast<double>(config.ps.n_push);
}

// A worker that was started again goes on where the others are, in the data as well.
void catch_up(parallel::PsStrategy& strategy, engine::Engine& engine, data::Loader& loader,
              int64_t accumulate, int workers) {
  strategy.begin();
  parallel::Strategy::Progress all = *strategy.progress();
  engine.resume_at(all.step, 0);
  int64_t batches = all.minibatches * accumulate / workers, epoch = loader.batches_per_epoch();
  loader.seek({batches / epoch, batches % epoch});
  log::info("back in the run, at update {}", all.step);
}

std::string last_checkpoint(const std::filesystem::path& out) {
  std::optional<checkpoint::Loaded> loaded;
  try {
    loaded = checkpoint::load_newest(out);
  } catch (const Error&) {
  }
  return loaded ? loaded->path.string() : "none";
}

}  // namespace

int run_train_with_servers(const CommandLine& line, Configuration& configuration) {
  RunConfig& config = configuration.values;
  const std::filesystem::path out = config.out.dir;
  cluster::World world = join_with_servers(config);
  const int workers = worker_count(config, world.size());
  const bool first = world.rank() == 0;
  if (config.parallel.data > 0 && config.parallel.data != workers)
    throw ConfigError("parallel.data = {} with {} worker{}: start as many, with --nproc {}.",
                      config.parallel.data, workers, workers == 1 ? "" : "s", config.parallel.data);
  ps::Colocated seats;
  if (config.ps.place == "colocated")
    seats = ps::connect_colocated(world, static_cast<int>(config.ps.servers), config.parallel.backend);
  else
    seats.worker = ps::connect(world, config.parallel.backend);
  std::optional<HostedServer> server;
  if (seats.server) server.emplace(config, world, std::move(seats.server));
  const bool again = world.life() > 0;
  std::optional<checkpoint::Loaded> resume;
  if (!again) resume = find_resume(line.train, out, {});

  engine::WorkerOptions options = worker_options(config);
  options.ps = ps_setup(config, workers);
  options.ps->messenger = seats.worker.get();
  options.local_rank = world.identity().local_rank;
  options.local_ranks = world.identity().local_world_size;
  if (!resume && !again) options.init = line.train.init;
  auto worker = engine::make_worker(options);
  auto& strategy = dynamic_cast<parallel::PsStrategy&>(*worker->strategy);
  auto seed = static_cast<uint64_t>(config.train.loop.seed);
  auto train_set = data::open(config.data, data::Split::kTrain, worker->model.sample, seed);
  data::Loader loader(*train_set, config.data, seed, {world.rank(), workers});
  engine::LoopPlan plan = loop_plan(config, *worker, loader, workers);
  count_in_updates(plan, config, workers);
  strategy.end_at(plan.total_steps);

  engine::Engine engine(*worker->strategy, loader, plan);
  engine::Progress progress;
  if (resume) {
    progress = engine::restore_state(*resume, *worker, loader);
    strategy.start_at(progress.step);
    if (!first)  // what was saved are the numbers of the first
      torch::manual_seed(seed +
                         0x9E3779B97F4A7C15u * static_cast<uint64_t>(progress.step * 4096 + world.rank()));
    engine.resume_at(progress.step, progress.samples);
    if (first)
      log::info("going on from {} (step {} of {})", resume->path.string(), progress.step, plan.total_steps);
  }
  if (again) catch_up(strategy, engine, loader, config.train.loop.accumulate, workers);
  std::optional<RunFolder> folder;
  if (first) folder.emplace(out, configuration, line).attach_sinks(engine);
  std::unique_ptr<data::Dataset> test_set;
  if (config.train.loop.evaluate && first) {
    test_set = data::open(config.data, data::Split::kTest, worker->model.sample, seed);
    auto stop = [] { return engine::requested_stop() != 0; };
    engine.attach_evaluation(
        [&, stop] { return engine::evaluate(*worker, *test_set, config.data.batch_size, stop); });
  }
  checkpoint::Writer writer(out / "checkpoints", config.checkpoint);
  if (config.checkpoint.every_steps > 0 && first) {
    engine.attach_checkpoints([&](int64_t step) { return step % config.checkpoint.every_steps == 0; },
                              [&](const engine::SaveRequest& request) {
                                int64_t version = strategy.fetch_state();
                                writer.save(version,
                                            engine::collect_state(*worker, loader, {version, request.samples},
                                                                  configuration.schema.to_toml()));
                              });
  }

  engine::Outcome outcome;
  try {
    outcome = engine.run(first ? folder->run_info(worker->model, plan, progress.step) : metrics::RunInfo{});
  } catch (const CommError& error) {
    writer.wait();
    if (!first) throw;
    throw CommError("{}. The last checkpoint is {}; the same command goes on from there.", error.what(),
                    last_checkpoint(out));
  }
  writer.wait();
  if (first) write_file_atomically(out / "ps.json", strategy.report() + "\n");
  strategy.goodbye();
  if (server) server->finish();
  int code = outcome.stopped_by_signal != 0 ? 128 + outcome.stopped_by_signal : 0;
  if (!first) return code;
  metrics::Summary summary =
      folder->summarise(outcome, plan, *worker, resume ? std::optional(progress.step) : std::nullopt);
  summary.peak_memory_bytes = {compute::peak_memory_bytes(worker->device)};
  summary.parameter_hash = engine::parameter_hash(*worker->model.module);
  summary.world_size = workers;
  folder->finish(summary);
  if (code != 0) {
    log::info("stopped at step {} of {}; the same command goes on from there", outcome.steps,
              plan.total_steps);
    return code;
  }
  print_summary(line, summary, config);
  return 0;
}

}  // namespace yoke::cli
