// yoke train: the story in order.
#include <fmt/core.h>

#include <cmath>
#include <csignal>
#include <filesystem>

#include "cli/output.h"
#include "cli/run_config.h"
#include "cli/torch/commands.h"
#include "cli/torch/follow_plan.h"
#include "cli/torch/train_output.h"
#include "cli/torch/train_parts.h"
#include "cli/torch/worker_options.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/log.h"
#include "yoke/base/units.h"
#include "yoke/checkpoint/checkpoint.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/compute/device.h"
#include "yoke/data/loader.h"
#include "yoke/data/shapes_only.h"
#include "yoke/engine/engine.h"
#include "yoke/engine/parameter_hash.h"
#include "yoke/engine/pipeline_timeline.h"
#include "yoke/engine/pipeline_worker.h"
#include "yoke/engine/run_state.h"
#include "yoke/engine/speed_split.h"
#include "yoke/engine/stop_signal.h"
#include "yoke/engine/team.h"
#include "yoke/engine/worker.h"
#include "yoke/optim/schedule.h"

namespace yoke::cli {

engine::LoopPlan loop_plan(const RunConfig& config, const engine::Worker& worker, const data::Loader& loader,
                           int64_t replicas) {
  const engine::LoopOptions& loop = config.train.loop;
  engine::LoopPlan plan;
  plan.accumulate = loop.accumulate;
  plan.replicas = replicas;
  plan.batches_per_epoch = static_cast<double>(loader.batches_per_epoch());
  double steps_per_epoch = plan.batches_per_epoch / static_cast<double>(loop.accumulate);
  plan.total_steps =
      loop.steps > 0 ? loop.steps : static_cast<int64_t>(std::ceil(loop.epochs * steps_per_epoch));
  plan.log_every = config.out.log_every;
  plan.skip_non_finite = loop.non_finite == "skip";
  // Stages of a pipeline do not wait for a loss that others compute.
  plan.wait_for_loss = worker.device.is_cpu() && !worker.stage;
  bool tokens = worker.model.sample.kind == SampleKind::kTokens;
  plan.tokens_per_sample =
      tokens ? (config.data.seq_len > 0 ? config.data.seq_len : worker.model.sample.shape[0]) : 0;
  optim::ScheduleContext context{plan.total_steps, std::max<int64_t>(1, std::llround(steps_per_epoch)),
                                 replicas};
  plan.learning_rate = [schedule = config.train.schedule, lr = config.train.optimizer.lr,
                        context](int64_t step) { return optim::learning_rate(schedule, lr, context, step); };
  plan.peak_memory = [device = worker.device] { return compute::peak_memory_bytes(device); };
  return plan;
}

// The first rank chooses: it alone reads all bytes.
std::optional<checkpoint::Loaded> find_resume(const TrainArguments& arguments,
                                              const std::filesystem::path& out,
                                              const checkpoint::Team& team) {
  if (arguments.resume == "never") return std::nullopt;
  std::optional<checkpoint::Loaded> loaded;
  auto choose = [&]() -> nlohmann::json {
    if (team.rank != 0) return nullptr;
    loaded = arguments.resume == "auto" ? checkpoint::load_newest(out) : checkpoint::load(arguments.resume);
    if (!loaded) return nullptr;
    for (const auto& other : loaded->passed_over)
      log::warn("passed over checkpoint {}: {}", other.path.string(), other.problem);
    return std::filesystem::absolute(loaded->path).string();
  };
  if (team.size == 1) {
    choose();
    return loaded;
  }
  nlohmann::json chosen = checkpoint::Meeting(team, 0).after("resume", choose)[0];
  if (team.rank != 0 && chosen.is_string()) loaded = checkpoint::open(chosen.get<std::string>());
  return loaded;
}

namespace {

std::vector<int64_t> peak_memory_of_ranks(const engine::Worker& worker, comm::Communicator* replicas) {
  int64_t own = compute::peak_memory_bytes(worker.device);
  if (replicas == nullptr) return {own};
  torch::Tensor all =
      comm::all_gather(*replicas, torch::tensor({own}, torch::kInt64).to(worker.device), "peak memory").cpu();
  return {all.const_data_ptr<int64_t>(), all.const_data_ptr<int64_t>() + all.numel()};
}

}  // namespace

int run_train(const CommandLine& line) {
  Configuration configuration;
  configuration.load(line.train.file, line.overrides);
  RunConfig& config = configuration.values;
  if (config.out.dir.empty()) config.out.dir = fmt::format("runs/{}_{}", config.model.name, config.data.name);
  if (config.parallel.sync == "ps") return run_train_with_servers(line, configuration);
  const std::filesystem::path out = config.out.dir;
  World world = join_world(config);
  follow_plan(config, world);
  const bool first = world.rank() == 0;  // who speaks and writes
  const checkpoint::Team team = engine::team_of(world.job());
  std::optional<checkpoint::Loaded> resume = find_resume(line.train, out, team);

  engine::WorkerOptions options = worker_options(config, world);
  if (!resume) options.init = line.train.init;
  auto worker = engine::make_worker(options);
  comm::Communicator* replicas = world.size() > 1 ? &world.comm() : nullptr;
  auto seed = static_cast<uint64_t>(config.train.loop.seed);
  auto open_data = [&](data::Split split) {
    auto samples = data::open(config.data, split, worker->model.sample, seed);
    return engine::needs_samples(*worker) ? std::move(samples) : data::shapes_only(*samples);
  };
  auto train_set = open_data(data::Split::kTrain);
  data::DataOptions cut = config.data;
  cut.batch_size *= options.threads;
  data::Shard shard{world.rank(), world.size()};
  if (worker->stage) shard = {worker->stage->place.copy, worker->stage->layout.copies};
  data::Loader loader(*train_set, cut, seed, shard);
  engine::LoopPlan plan = loop_plan(config, *worker, loader, shard.size * options.threads);

  engine::Engine engine(*worker->strategy, loader, plan);
  loader.set_shares(engine::parse_split(config.parallel.split, static_cast<int>(shard.size)));
  std::optional<engine::SpeedSplit> speeds;
  if (config.parallel.split == "speed" && replicas != nullptr) {
    speeds.emplace(*replicas, worker->device, [&](const auto& shares) { loader.set_shares(shares); });
    engine.attach_balance([&](int64_t samples, double seconds) { speeds->add(samples, seconds); });
  }
  engine::Progress progress;
  if (resume) {
    progress = engine::restore_state(*resume, *worker, loader, replicas);
    engine.resume_at(progress.step, progress.samples);
    if (first)
      log::info("going on from {} (step {} of {})", resume->path.string(), progress.step, plan.total_steps);
  }
  std::optional<RunFolder> folder;
  if (first) folder.emplace(out, configuration, line).attach_sinks(engine);
  if (config.out.trace) {
    world.comm().barrier().wait();  // all ranks start their clocks together
    attach_trace(engine, out, world.rank(), world.size());
  }

  std::unique_ptr<data::Dataset> test_set;
  if (config.train.loop.evaluate) {
    test_set = open_data(data::Split::kTest);
    auto stop = [] { return engine::requested_stop() != 0; };
    engine.attach_evaluation(
        [&, stop] { return engine::evaluate(*worker, *test_set, config.data.batch_size, stop, replicas); });
  }
  checkpoint::Writer writer(out / "checkpoints", config.checkpoint, nullptr, team);
  if (config.checkpoint.every_steps > 0) {
    auto state_at = [&](engine::Progress at) {
      return engine::collect_state(*worker, loader, at, configuration.schema.to_toml(), replicas);
    };
    writer.reserve(state_at(progress));
    engine.attach_checkpoints([&](int64_t step) { return step % config.checkpoint.every_steps == 0; },
                              [&, state_at](const engine::SaveRequest& request) {
                                writer.save(request.step, state_at({request.step, request.samples}));
                              });
  }

  engine::Outcome outcome =
      engine.run(first ? folder->run_info(worker->model, plan, progress.step) : metrics::RunInfo{});
  writer.wait();
  if (worker->pipeline != nullptr) {
    nlohmann::json timeline = engine::pipeline_timeline(*worker);
    if (first) write_file_atomically(out / "pipeline.json", timeline.dump() + "\n");
  }
  std::vector<int64_t> memory = peak_memory_of_ranks(*worker, replicas);  // after it all traces are written
  if (config.out.trace && first) join_traces(out);
  std::string hash = engine::parameter_hash(engine::whole_model(*worker));
  if (!first) return outcome.stopped_by_signal != 0 ? 128 + outcome.stopped_by_signal : 0;
  metrics::Summary summary =
      folder->summarise(outcome, plan, *worker, resume ? std::optional(progress.step) : std::nullopt);
  summary.peak_memory_bytes = std::move(memory);
  summary.parameter_hash = hash;
  summary.world_size = world.size() * options.threads;
  folder->finish(summary);
  if (outcome.stopped_by_signal != 0) {
    log::info("stopped at step {} of {}; the same command goes on from there", outcome.steps,
              plan.total_steps);
    return 128 + outcome.stopped_by_signal;
  }
  print_summary(line, summary, config);
  return 0;
}

}  // namespace yoke::cli
