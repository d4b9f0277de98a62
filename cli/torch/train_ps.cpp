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

parallel::PsSetup setup_of(const RunConfig& config, comm::Messenger& messenger, int workers) {
  parallel::PsSetup setup;
  setup.messenger = &messenger;
  setup.workers = workers;
  setup.ps = config.ps;
  setup.slowdown = config.slowdown;
  setup.policy = policy_of(config, workers);
  setup.timeout = config.ps.timeout;
  return setup;
}

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

// Everybody learns which worker is stuck; the launcher ends it.
void accuse(cluster::World& world, const ps::LateWorker& late) {
  if (world.alone()) return;
  cluster::FailureReport report;
  report.rank = late.worker();
  report.kind = "deadline";
  report.what = late.what();
  report.next = "Next: look at that process (`ps`, a debugger attached, the machine's load and memory)";
  world.session().fail(report);
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
  options.ps = setup_of(config, *seats.worker, workers);
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
  if (config.out.trace) {
    strategy.begin();  // work is handed out to all workers at the same time
    attach_trace(engine, out, world.rank(), workers);
  }
  std::unique_ptr<data::Dataset> test_set;
  if (config.train.loop.evaluate && first) {
    test_set = data::open(config.data, data::Split::kTest, worker->model.sample, seed);
    auto stop = [&strategy] {
      strategy.say_alive();
      return engine::requested_stop() != 0;
    };
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
    if (const auto* late = dynamic_cast<const ps::LateWorker*>(&error)) accuse(world, *late);
    if (!first) throw;
    throw CommError("{}. The last checkpoint is {}; the same command goes on from there.", error.what(),
                    last_checkpoint(out));
  }
  writer.wait();
  const int64_t own_memory = compute::peak_memory_bytes(worker->device);
  std::vector<int64_t> memory;  // by worker, once all have ended
  std::optional<ps::LateWorker> stuck;
  if (first) {
    try {
      memory = strategy.await_end();
    } catch (const ps::LateWorker& late) {
      memory.resize(static_cast<size_t>(workers));
      stuck = late;
    }
    memory.front() = own_memory;
    write_file_atomically(out / "ps.json", strategy.report() + "\n");
    if (config.out.trace) join_traces(out);
  }
  strategy.goodbye(own_memory);
  if (server && !stuck) server->finish();
  int code = outcome.stopped_by_signal != 0 ? 128 + outcome.stopped_by_signal : 0;
  if (!first) return code;
  metrics::Summary summary =
      folder->summarise(outcome, plan, *worker, resume ? std::optional(progress.step) : std::nullopt);
  summary.peak_memory_bytes = std::move(memory);
  summary.parameter_hash = engine::parameter_hash(*worker->model.module);
  summary.world_size = workers;
  folder->finish(summary);
  if (stuck) {
    accuse(world, *stuck);
    throw CommError("{}; its records are complete", stuck->what());
  }
  if (code != 0) {
    log::info("stopped at step {} of {}; the same command goes on from there", outcome.steps,
              plan.total_steps);
    return code;
  }
  print_summary(line, summary, config);
  return 0;
}

}  // namespace yoke::cli
