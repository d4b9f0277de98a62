// yoke train: the story in order.
#include <fmt/core.h>

#include <cmath>
#include <csignal>
#include <filesystem>

#include "cli/idle_keys.h"
#include "cli/output.h"
#include "cli/run_config.h"
#include "cli/torch/commands.h"
#include "cli/torch/follow_plan.h"
#include "cli/torch/memory_failure.h"
#include "cli/torch/resume_note.h"
#include "cli/torch/train_output.h"
#include "cli/torch/train_parts.h"
#include "cli/torch/train_resume.h"
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
                           int64_t replicas, const engine::Progress& done, double steps_per_batch) {
  const engine::LoopOptions& loop = config.train.loop;
  auto batches = static_cast<double>(loader.batches_per_epoch());
  auto batches_done = static_cast<double>(loader.batches_done());
  auto accumulate = static_cast<double>(loop.accumulate);
  engine::LoopPlan plan;
  plan.accumulate = loop.accumulate;
  plan.replicas = replicas;
  plan.batches_per_epoch = batches * steps_per_batch;
  plan.first_step = done.step;
  plan.first_epoch = batches_done / batches;
  double left = std::max(0.0, loop.epochs * batches - batches_done);
  plan.total_steps = loop.steps > 0
                         ? loop.steps
                         : done.step + static_cast<int64_t>(std::ceil(left * steps_per_batch / accumulate));
  plan.log_every = config.out.log_every;
  plan.skip_non_finite = loop.non_finite == "skip";
  // Stages of a pipeline do not wait for a loss that others compute.
  plan.wait_for_loss = worker.device.is_cpu() && !worker.stage;
  bool tokens = worker.model.sample.kind == SampleKind::kTokens;
  plan.tokens_per_sample =
      tokens ? (config.data.seq_len > 0 ? config.data.seq_len : worker.model.sample.shape[0]) : 0;
  optim::ScheduleContext context{plan.total_steps, plan.batches_per_epoch / accumulate, replicas,
                                 plan.first_step, plan.first_epoch};
  plan.learning_rate = [schedule = config.train.schedule, lr = config.train.optimizer.lr,
                        context](int64_t step) { return optim::learning_rate(schedule, lr, context, step); };
  plan.peak_memory = [device = worker.device] { return compute::peak_memory_bytes(device); };
  return plan;
}

void give_hints(const RunConfig& config) {
  const compute::ComputeOptions& compute = config.train.compute;
  if (compute.precision == "bf16" && compute.device == "cpu")
    log::info(
        "train.precision = \"bf16\" on the CPU takes more memory than fp32 (weights stay fp32 and are "
        "copied) "
        "and is often slower. Compare: yoke bench step --model {} --precision fp32,bf16",
        config.model.name);
}

namespace {

std::vector<int64_t> peak_memory_of_ranks(const engine::Worker& worker, comm::Communicator* replicas) {
  int64_t own = compute::peak_memory_bytes(worker.device);
  if (replicas == nullptr) return {own};
  torch::Tensor all =
      comm::all_gather(*replicas, torch::tensor({own}, torch::kInt64).to(worker.device), "peak memory").cpu();
  return {all.const_data_ptr<int64_t>(), all.const_data_ptr<int64_t>() + all.numel()};
}

int train_as_rank(const CommandLine& line, Configuration& configuration, World& world) {
  RunConfig& config = configuration.values;
  const std::filesystem::path out = config.out.dir;
  follow_plan(config, world);
  const bool first = world.rank() == 0;  // who speaks and writes
  if (first) give_hints(config);
  const checkpoint::Team team = engine::team_of(world.job());
  Resume resume = find_resume(line.train, out, team, first);

  engine::WorkerOptions options = worker_options(config, world);
  if (!resume.checkpoint) options.init = line.train.init;
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
  if (worker->stage) {
    shard = {worker->stage->place.copy, worker->stage->layout.copies};
    world.job().take_role(fmt::format("pipeline stage {}", worker->stage->place.stage));
  }
  data::Loader loader(*train_set, cut, seed, shard);
  engine::Progress progress;
  if (resume.checkpoint) progress = engine::restore_state(*resume.checkpoint, *worker, loader, replicas);
  engine::LoopPlan plan = loop_plan(config, *worker, loader, shard.size * options.threads, progress);
  if (nothing_left(resume, progress, plan.total_steps, config.train.loop.evaluate)) {
    if (first) tell_nothing_left(resume, progress, plan.total_steps, line, config);
    return 0;
  }

  engine::Engine engine(*worker->strategy, loader, plan);
  engine.attach_memory_report(memory_report(*worker, options));
  loader.set_shares(engine::parse_split(config.parallel.split, static_cast<int>(shard.size)));
  std::optional<engine::SpeedSplit> speeds;
  if (config.parallel.split == "speed" && replicas != nullptr) {
    speeds.emplace(*replicas, worker->device, [&](const auto& shares) { loader.set_shares(shares); });
    engine.attach_balance([&](int64_t samples, double seconds) { speeds->add(samples, seconds); });
  }
  if (resume.checkpoint) {
    engine.resume_at(progress.step, progress.samples, progress.loss);
    if (first)
      tell_resume(resume, progress, plan.total_steps, configuration,
                  resume_note(config, *resume.checkpoint, *worker, world.size()));
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
    engine.attach_evaluation([&, stop] {
      return engine::evaluate(*worker, *test_set, evaluation_batch(config, *worker), stop, replicas);
    });
  }
  engine::StopSignals signals;  // until the last checkpoint is written
  checkpoint::Writer writer(out / "checkpoints", config.checkpoint, nullptr, team);
  if (config.checkpoint.every_steps > 0) {
    auto state_at = [&](engine::Progress at) {
      at.position = loader.position();
      return engine::collect_state(*worker, at, configuration.schema.to_toml(), replicas);
    };
    writer.reserve(state_at(progress));
    engine.attach_checkpoints([&](int64_t step) { return step % config.checkpoint.every_steps == 0; },
                              [&, state_at](const engine::SaveRequest& request) {
                                engine::Progress at{request.step, request.samples, {}, request.loss};
                                writer.save(request.step, state_at(at));
                              });
  }

  // Others are told while the worker still stands: taking it down waits for transfers that need them.
  engine::Outcome outcome;
  telling_others(world.job(), [&] {
    outcome = engine.run(first ? folder->run_info(worker->model, plan, progress.step) : metrics::RunInfo{});
    return 0;
  });
  writer.wait();
  if (worker->pipeline != nullptr) {
    nlohmann::json timeline = engine::pipeline_timeline(*worker);
    if (first) write_file_atomically(out / "pipeline.json", timeline.dump() + "\n");
  }
  std::vector<int64_t> memory = peak_memory_of_ranks(*worker, replicas);  // after it all traces are written
  if (config.out.trace && first) join_traces(out);
  std::string hash = engine::parameter_hash(engine::whole_model(*worker));
  check_budget_was_kept(config, memory[static_cast<size_t>(world.rank())]);
  if (!first) return outcome.stopped_by_signal != 0 ? 128 + outcome.stopped_by_signal : 0;
  metrics::Summary summary =
      folder->summarise(outcome, plan, *worker, resume.kept, resume.resumed_from(progress));
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

}  // namespace

int run_train(const CommandLine& line) {
  Configuration configuration;
  configuration.load(line.train.file, line.overrides);
  reset_idle_keys(configuration);
  RunConfig& config = configuration.values;
  if (config.out.dir.empty()) config.out.dir = fmt::format("runs/{}_{}", config.model.name, config.data.name);
  if (config.parallel.sync == "ps") return run_train_with_servers(line, configuration);
  World world = join_world(config);
  return telling_others(world.job(), [&] { return train_as_rank(line, configuration, world); });
}

}  // namespace yoke::cli
