// yoke train with parameter servers: the same story for a worker. The servers are other ranks
// (cli/ps_server.cpp).
#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/ps_server.h"
#include "cli/run_checks.h"
#include "cli/torch/memory_failure.h"
#include "cli/torch/resume_note.h"
#include "cli/torch/train_output.h"
#include "cli/torch/train_parts.h"
#include "cli/torch/train_resume.h"
#include "cli/torch/worker_options.h"
#include "yoke/base/deadline.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json_text.h"
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
double updates_per_batch(const RunConfig& config, int workers) {
  auto k = static_cast<double>(plan::effective_k(policy_of(config, workers)));
  return workers / k / static_cast<double>(config.ps.n_push);
}

// Where the run started in the data, for workers that are started again into it.
constexpr const char* kStartKey = "train/start";
constexpr double kStartPatience = 60;

void tell_start(cluster::World& world, const engine::Progress& start) {
  if (world.alone()) return;
  nlohmann::json told = {
      {"step", start.step}, {"epoch", start.position.epoch}, {"sample", start.position.sample}};
  world.session().put(kStartKey, told.dump(), Deadline::after(kStartPatience));
}

engine::Progress hear_start(cluster::World& world) {
  nlohmann::json told =
      parse_json(world.session().get(kStartKey, Deadline::after(kStartPatience)), "where the run started");
  return {told.at("step"), 0, {told.at("epoch"), told.at("sample")}};
}

// Workers take their parts of global batches, each at its own pace where the rule allows it: the position of
// the run is that of their mean.
data::Position mean_position(const parallel::PsStrategy& strategy, const data::Loader& loader,
                             const engine::Progress& start, int64_t accumulate, int workers) {
  return loader.after(start.position, strategy.progress()->minibatches * accumulate / workers);
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

int train_as_worker(const CommandLine& line, Configuration& configuration, cluster::World& world) {
  RunConfig& config = configuration.values;
  const std::filesystem::path out = config.out.dir;
  const int workers = worker_count(config, world.size());
  const bool first = world.rank() == 0;
  check_workers(config, workers);
  const bool serves = config.ps.place == "colocated" && world.rank() < config.ps.servers;
  world.take_role(fmt::format("worker {0}{1}", world.rank(),
                              serves ? fmt::format(" with parameter server {}", world.rank()) : ""));
  ps::Colocated seats;
  if (config.ps.place == "colocated")
    seats = ps::connect_colocated(world, static_cast<int>(config.ps.servers), config.parallel.backend);
  else
    seats.worker = ps::connect(world, config.parallel.backend);
  std::optional<HostedServer> server;
  if (seats.server) server.emplace(config, world, std::move(seats.server));
  const bool again = world.life() > 0;
  if (first) give_hints(config);
  Resume resume;
  if (!again) resume = find_resume(line.train, out, {}, first);

  engine::WorkerOptions options = worker_options(config);
  options.ps = ps_setup(config, workers);
  options.ps->messenger = seats.worker.get();
  options.local_rank = world.identity().local_rank;
  options.local_ranks = world.identity().local_world_size;
  if (!resume.checkpoint && !again) options.init = line.train.init;
  auto worker = engine::make_worker(options);
  auto& strategy = dynamic_cast<parallel::PsStrategy&>(*worker->strategy);
  auto seed = static_cast<uint64_t>(config.train.loop.seed);
  auto train_set = data::open(config.data, data::Split::kTrain, worker->model.sample, seed);
  data::Loader loader(*train_set, config.data, seed, {world.rank(), workers});
  engine::Progress start;
  if (resume.checkpoint) {
    start = engine::restore_state(*resume.checkpoint, *worker, loader);
    strategy.start_at(start.step);
    if (!first)  // what was saved are the numbers of the first
      torch::manual_seed(seed +
                         0x9E3779B97F4A7C15u * static_cast<uint64_t>(start.step * 4096 + world.rank()));
  }
  if (first) tell_start(world, start);
  if (again) {
    start = hear_start(world);
    loader.seek(start.position);
  }
  const int64_t accumulate = config.train.loop.accumulate;
  engine::LoopPlan plan =
      loop_plan(config, *worker, loader, workers, start, updates_per_batch(config, workers));
  strategy.end_at(plan.total_steps);
  if (nothing_left(resume, start, plan.total_steps, config.train.loop.evaluate)) {
    if (first) tell_nothing_left(resume, start, plan.total_steps, line, config);
    strategy.goodbye(compute::peak_memory_bytes(worker->device));
    if (server) server->finish();
    return 0;
  }

  engine::Engine engine(*worker->strategy, loader, plan);
  engine.attach_memory_report(memory_report(*worker, options));
  if (resume.checkpoint) {
    engine.resume_at(start.step, start.samples, start.loss);
    if (first)
      tell_resume(resume, start, plan.total_steps, configuration,
                  resume_note(config, *resume.checkpoint, *worker, workers));
  }
  if (again) {  // goes on where the others are, in the data as well
    strategy.begin();
    engine.resume_at(strategy.progress()->step, 0);
    loader.seek(mean_position(strategy, loader, start, accumulate, workers));
    log::info("back in the run, at update {}", strategy.progress()->step);
  }
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
        [&, stop] { return engine::evaluate(*worker, *test_set, evaluation_batch(config, *worker), stop); });
  }
  engine::StopSignals signals;  // until the last checkpoint is written
  checkpoint::Writer writer(out / "checkpoints", config.checkpoint);
  if (config.checkpoint.every_steps > 0 && first) {
    engine.attach_checkpoints(
        [&](int64_t step) { return step % config.checkpoint.every_steps == 0; },
        [&](const engine::SaveRequest& request) {
          engine::Progress at{strategy.fetch_state(), request.samples, {}, request.loss};
          at.position = mean_position(strategy, loader, start, accumulate, workers);
          writer.save(at.step, engine::collect_state(*worker, at, configuration.schema.to_toml()));
        });
  }

  engine::Outcome outcome;
  try {
    outcome = engine.run(first ? folder->run_info(worker->model, plan, start.step) : metrics::RunInfo{});
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
      folder->summarise(outcome, plan, *worker, resume.kept, resume.resumed_from(start));
  summary.peak_memory_bytes = std::move(memory);
  check_budget_was_kept(config, own_memory);
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

}  // namespace

int run_train_with_servers(const CommandLine& line, Configuration& configuration) {
  cluster::World world = join_with_servers(configuration.values);
  return telling_others(world, [&] { return train_as_worker(line, configuration, world); });
}

}  // namespace yoke::cli
