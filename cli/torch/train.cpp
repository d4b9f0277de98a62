// yoke train: a training run from start to end, the same for every strategy.
#include <fmt/core.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/idle_keys.h"
#include "cli/output.h"
#include "cli/ps_join_command.h"
#include "cli/torch/commands.h"
#include "cli/torch/data_sets.h"
#include "cli/torch/follow_plan.h"
#include "cli/torch/memory_failure.h"
#include "cli/torch/rank_usage.h"
#include "cli/torch/resume_note.h"
#include "cli/torch/train_epochs.h"
#include "cli/torch/train_output.h"
#include "cli/torch/train_parts.h"
#include "cli/torch/worker_options.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/text.h"
#include "yoke/cluster/job_contact.h"
#include "yoke/compute/device.h"
#include "yoke/config/changes.h"

namespace yoke::cli {
namespace {

int train_as_rank(const CommandLine& line, Configuration& configuration, parallel::Membership& member,
                  DataSets& sets, Epochs& epochs) {
  RunConfig& config = configuration.values;
  const bool first = member.first();  // logs and writes
  follow_plan(config, member);
  if (first) give_hints(config);
  Resume resume = epochs.take_resume(line.train);
  if (!resume) resume = find_resume(line.train, config, member);
  RankUsage usage;
  engine::WorkerOptions options = worker_options(config, member, resume ? "" : line.train.init);
  options.values_follow = resume.in_memory && !resume.fill;
  auto worker = engine::make_worker(options);
  epochs.follow(*worker);
  parallel::Strategy& strategy = *worker->strategy;
  RunData data(config, *worker, sets, epochs.global_batch());
  engine::Progress start = locate_start(resume, *worker, data.loader());
  engine::LoopPlan plan = epochs.loop_plan(*worker, data.loader(), start);
  if (nothing_left(resume, start, plan.total_steps, config.train.loop.evaluate)) {
    if (first) tell_nothing_left(resume, start, plan.total_steps, line, config);
    strategy.finish(compute::peak_memory_bytes(worker->device));
    return 0;
  }

  engine::Engine engine(strategy, data.loader(), plan);
  Attachments attached(configuration, *worker, data, start, member);
  attached.attach_to(engine);
  if (resume) engine.resume_at(start.step, start.samples, start.loss);
  epochs.attach_to(engine, *worker, data.loader(), resume);
  if (resume && !resume.in_memory && first)
    tell_resume(resume, start, plan.total_steps, configuration,
                resume_note(config, *resume.checkpoint, *worker, member.workers()));
  std::optional<RunFolder> folder;
  engine::Outcome outcome = epochs.keeping([&] {
    if (first) folder.emplace(config.out.dir, configuration, line).attach_sinks(engine, epochs.recent());
    begin(config, engine, *worker, data.loader(), plan, start);
    usage.begin(strategy);
    if (config.out.trace) attach_trace(engine, config.out.dir, member.rank(), member.workers());
    auto info = first ? folder->run_info(worker->model, plan, start.step) : metrics::RunInfo{};
    return run_engine(engine, info, *worker, attached, member, config.out.dir);
  });
  if (epochs.continue_after(outcome)) return 0;
  parallel::RunEnd end = epochs.keeping([&] { return usage.end(*worker, config, outcome); });
  const int code = outcome.stopped_by_signal != 0 ? 128 + outcome.stopped_by_signal : 0;
  if (!first) return code;
  metrics::Summary summary =
      folder->summarise(outcome, plan, *worker, resume.kept, resume.resumed_from(start));
  usage.put(summary, config, plan, member.workers(), end.peak_memory);
  epochs.put(summary);
  finish_run(*folder, summary, end, attached.writer(), strategy);
  print_end(line, summary, config, code, plan.total_steps);
  return code;
}

// The servers know the part that concerns them, and the layout of the model.
void check_same_run(const CommandLine& line, const Configuration& configuration) {
  if (line.ps.config.empty()) return;
  const std::filesystem::path saved = std::filesystem::path(line.ps.job.where) / "config.toml";
  if (!std::filesystem::exists(saved)) return;
  const std::vector<std::string> changes =
      config::changed_keys(read_file(saved), configuration.schema,
                           {"out", "data.dir", "data.workers", "data.prefetch", "train.threads"});
  if (!changes.empty())
    throw ConfigError("this worker cannot join the job: it has another configuration: {}.", join(changes));
}

}  // namespace

int run_train(const CommandLine& line) {
  Configuration configuration;
  configuration.load(line.train.file, line.overrides);
  reset_idle_keys(configuration);
  DataSets sets(configuration.values);
  if (configuration.values.elastic.enabled) sets.prepare();
  parallel::Membership member = join_job(configuration.values, [&] { warm_up(configuration.values); });
  Epochs epochs(configuration, member);
  return epochs.run([&] {
    return telling_others(member.job(),
                          [&] { return train_as_rank(line, configuration, member, sets, epochs); });
  });
}

// What fails here is no failure of the job.
int run_ps_join(const CommandLine& line) {
  constexpr double kFindSeconds = 5;
  cluster::JobContact job = cluster::find_job(line.ps.job, Deadline::after(kFindSeconds));
  Configuration configuration;
  configuration.load(ps_config_file(line), {});
  check_same_run(line, configuration);
  configuration.values.out.dir = run_folder(configuration.values);
  parallel::Membership member(join_request(configuration.values), std::move(job));
  reset_idle_keys(configuration);
  fmt::print(stderr, "joined as worker {}\n", member.worker());
  DataSets sets(configuration.values);
  Epochs epochs(configuration, member);
  const int code = train_as_rank(line, configuration, member, sets, epochs);
  if (line.json)
    print_json({{"worker", member.worker()}});
  else
    fmt::print("worker {} has ended\n", member.worker());
  return code;
}

}  // namespace yoke::cli
