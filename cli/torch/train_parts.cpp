#include "cli/torch/train_parts.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cli/torch/memory_failure.h"
#include "cli/torch/worker_options.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/compute/device.h"
#include "yoke/data/shapes_only.h"
#include "yoke/engine/bench_step.h"
#include "yoke/engine/evaluate.h"
#include "yoke/engine/stop_signal.h"
#include "yoke/engine/team.h"
#include "yoke/optim/schedule.h"
#include "yoke/parallel/common/gather_json.h"
#include "yoke/parallel/elastic.h"
#include "yoke/parallel/takes_batches.h"

namespace yoke::cli {
namespace {

std::string last_checkpoint(const std::filesystem::path& out) {
  try {
    std::optional<checkpoint::Loaded> loaded = checkpoint::load_newest(out);
    return loaded ? loaded->path.string() : "none";
  } catch (const Error&) {
    return "none";
  }
}

// The data position of the run. Workers of servers each run at their own pace: it is their mean.
data::Position position_now(const RunConfig& config, const parallel::Strategy& strategy,
                            const data::Loader& loader, const engine::Progress& start) {
  std::optional<parallel::Strategy::Progress> all = strategy.progress();
  if (!all) return loader.position();
  const bool handed_out = parallel::hands_out_batches(config);
  const int64_t parts = handed_out ? 1 : strategy.share().parts;
  return loader.after(start.position, all->minibatches * config.train.loop.accumulate / parts);
}

// Those that save together: all ranks, or those of the first replica.
checkpoint::Team team_of(const engine::Worker& worker, parallel::Membership& member) {
  comm::Communicator* team = worker.strategy->team();
  if (team == nullptr) return {};
  const nlohmann::json ranks = parallel::gather_json(member.rank(), team);
  return engine::team_of(member.job(), ranks.get<std::vector<int>>());
}

}  // namespace

void warm_up(const RunConfig& config) {
  constexpr int64_t kSteps = 2;
  if (parallel::divides_state(config)) return;
  try {
    const engine::WorkerOptions options = worker_options(config).alone();
    auto worker = engine::make_worker(options);
    engine::time_steps(*worker, options, kSteps, /*steps=*/0);
  } catch (const std::exception& error) {
    log::info("no step was taken before joining: {}", error.what());
  }
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

RunData::RunData(const RunConfig& config, const engine::Worker& worker, DataSets& sets, int64_t global_batch)
    : config_(config), worker_(worker), sets_(sets) {
  const parallel::DataShare share = worker.strategy->share();
  train_set_ = open(data::Split::kTrain);
  data::DataOptions cut = config.data;
  cut.batch_size *= share.batches;
  const bool handed_out = parallel::hands_out_batches(config);
  if (handed_out) cut.workers = 0;  // which one is next is not known ahead
  loader_ = std::make_unique<data::Loader>(
      *train_set_, cut, static_cast<uint64_t>(config.train.loop.seed),
      handed_out ? data::Shard{} : data::Shard{share.part, share.parts, global_batch});
  if (handed_out) return;
  loader_->set_shares(engine::parse_split(config.parallel.split, static_cast<int>(share.parts)));
}

std::shared_ptr<const data::Dataset> RunData::open(data::Split split) const {
  std::shared_ptr<const data::Dataset> samples = sets_.open(split, worker_.model.sample);
  return worker_.strategy->share().reads ? samples : data::shapes_only(*samples);
}

engine::Progress locate_start(const Resume& resume, engine::Worker& worker, data::Loader& loader) {
  engine::Progress start;
  std::function<void()> fill;
  if (resume.fill) fill = [&] { resume.fill(worker); };
  if (resume.checkpoint) start = engine::restore_state(*resume.checkpoint, worker, loader, fill);
  parallel::RunStart at = worker.strategy->locate({start.step, start.position.epoch, start.position.sample});
  start.step = at.step;
  start.position = {at.epoch, at.sample};
  loader.seek(start.position);
  return start;
}

engine::LoopPlan loop_plan(const RunConfig& config, const engine::Worker& worker, const data::Loader& loader,
                           const engine::Progress& done, int64_t replicas_of_rate) {
  const engine::LoopOptions& loop = config.train.loop;
  const parallel::DataShare share = worker.strategy->share();
  const int64_t replicas = share.parts * share.batches;
  const double steps_per_batch = worker.strategy->steps_per_batch();
  auto batches = static_cast<double>(loader.batches_per_epoch());
  auto batches_done = static_cast<double>(loader.batches_done());
  auto accumulate = static_cast<double>(loop.accumulate);
  engine::LoopPlan plan;
  plan.accumulate = loop.accumulate;
  plan.replicas = replicas;
  plan.batches_per_epoch = batches * steps_per_batch;
  plan.first_step = done.step;
  plan.first_position = loader.position();
  plan.first_epoch = batches_done / batches;
  double left = std::max(0.0, loop.epochs * batches - batches_done);
  plan.total_steps = loop.steps > 0
                         ? loop.steps
                         : done.step + static_cast<int64_t>(std::ceil(left * steps_per_batch / accumulate));
  plan.log_every = config.out.log_every;
  plan.skip_non_finite = loop.non_finite == "skip";
  // Ranks do not wait for a loss that others compute, or that comes later.
  plan.wait_for_loss = worker.device.is_cpu() && !share.together && !worker.strategy->overlaps_steps();
  bool tokens = worker.model.sample.kind == SampleKind::kTokens;
  plan.tokens_per_sample =
      tokens ? (config.data.seq_len > 0 ? config.data.seq_len : worker.model.sample.shape[0]) : 0;
  optim::ScheduleContext context{plan.total_steps, plan.batches_per_epoch / accumulate,
                                 replicas_of_rate > 0 ? replicas_of_rate : replicas, plan.first_step,
                                 plan.first_epoch};
  plan.learning_rate = [schedule = config.train.schedule, lr = config.train.optimizer.lr,
                        context](int64_t step) { return optim::learning_rate(schedule, lr, context, step); };
  plan.peak_memory = [device = worker.device] { return compute::peak_memory_bytes(device); };
  return plan;
}

void begin(const RunConfig& config, engine::Engine& engine, engine::Worker& worker, data::Loader& loader,
           const engine::LoopPlan& plan, const engine::Progress& start) {
  parallel::Strategy& strategy = *worker.strategy;
  strategy.begin(plan.total_steps);
  if (!strategy.rejoined()) return;
  engine.resume_at(strategy.progress()->step, 0);
  loader.seek(position_now(config, strategy, loader, start));
  log::info("back in the run, at update {}", strategy.progress()->step);
}

Attachments::Attachments(const Configuration& configuration, engine::Worker& worker, RunData& data,
                         const engine::Progress& start, parallel::Membership& member)
    : configuration_(configuration),
      config_(configuration.values),
      worker_(worker),
      data_(data),
      start_(start),
      member_(member),
      writer_(std::filesystem::path(config_.out.dir) / "checkpoints", config_.checkpoint, nullptr,
              team_of(worker, member)) {}

bool Attachments::acts() const {
  return worker_.strategy->team() != nullptr || member_.first();
}

void Attachments::attach_to(engine::Engine& engine) {
  parallel::Strategy& strategy = *worker_.strategy;
  engine.attach_memory_report(memory_report(worker_, *worker_.options));
  if (config_.parallel.split == "speed" && strategy.team() != nullptr) {
    const parallel::DataShare share = strategy.share();
    speeds_.emplace(*strategy.team(), worker_.device, share.part, share.parts,
                    [&](const auto& shares) { data_.loader().set_shares(shares); });
    engine.attach_balance([&](int64_t samples, double seconds) { speeds_->add(samples, seconds); });
  }
  if (config_.train.loop.evaluate && acts()) {
    test_set_ = data_.open(data::Split::kTest);
    auto stop = [] { return engine::requested_stop() != 0; };
    engine.attach_evaluation([&, stop] {
      return engine::evaluate(worker_, *test_set_, evaluation_batch(config_, worker_), stop);
    });
  }
  if (config_.checkpoint.every_steps == 0 || !acts()) return;
  if (strategy.team() != nullptr) writer_.reserve(state_at(start_));
  engine.attach_checkpoints([&](int64_t step) { return step % config_.checkpoint.every_steps == 0; },
                            [&](const engine::SaveRequest& request) { save(request); });
}

checkpoint::State Attachments::state_at(engine::Progress at) {
  at.position = position_now(config_, *worker_.strategy, data_.loader(), start_);
  return engine::collect_state(worker_, at, configuration_.schema.to_toml());
}

void Attachments::save(const engine::SaveRequest& request) {
  const int64_t step = worker_.strategy->fetch_state().value_or(request.step);
  writer_.save(step, state_at({step, request.samples, {}, request.loss}));
}

engine::Outcome run_engine(engine::Engine& engine, const metrics::RunInfo& info, engine::Worker& worker,
                           Attachments& attached, parallel::Membership& member,
                           const std::filesystem::path& out) {
  engine::Outcome outcome;
  try {
    auto run = [&] {
      outcome = engine.run(info);
      return 0;
    };
    member.late() ? run() : telling_others(member.job(), run);
  } catch (const CommError& error) {
    if (!worker.strategy->progress()) throw;
    try {
      attached.writer().wait();
    } catch (const CommError&) {  // a save that needed the lost rank as well: the one before is the last
    }
    worker.strategy->failed(error);
    if (!member.first()) throw;
    throw CommError("{}. The last checkpoint is {}; run the same command again to resume.", error.what(),
                    last_checkpoint(out));
  }
  attached.writer().wait();
  return outcome;
}

}  // namespace yoke::cli
