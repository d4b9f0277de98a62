#include "cli/simulate_command.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "cli/output.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/terminal.h"
#include "yoke/base/text.h"
#include "yoke/base/units.h"
#include "yoke/report/table.h"
#include "yoke/report/timeline_svg.h"
#include "yoke/sim/pipeline.h"
#include "yoke/sim/pipeline_plan.h"

namespace yoke::cli {
namespace {

constexpr int kMinibatchesOfAPlan = 64;
constexpr int kInterleavedChunks = 2;  // as in `yoke train`

struct Job {
  plan::ScheduleRequest request;
  sim::PipelineCosts costs;
  double predicted = 0;  // seconds between minibatches, of a plan
};

std::vector<double> times_of(const std::string& text, const char* option) {
  std::vector<double> times;
  for (const std::string& part : split(text, ',')) {
    auto seconds = parse_duration(part);
    if (!seconds)
      throw ConfigError("{} {}: expected seconds such as 1, 5ms or one for each stage 1,2,1,1.", option,
                        text);
    times.push_back(*seconds);
  }
  if (times.empty())
    throw ConfigError("{} is required: seconds such as 1 or 5ms, or one for each stage 1,2,1,1.", option);
  return times;
}

std::vector<int> replicas_of(const std::string& text) {
  std::vector<int> replicas;
  for (const std::string& part : split(text, ',')) {
    int count = 0;
    auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), count);
    if (error != std::errc() || end != part.data() + part.size() || count < 1)
      throw ConfigError("--replicas {}: integers of at least 1, one for each stage: 2,1,1.", text);
    replicas.push_back(count);
  }
  return replicas;
}

int count_of(int64_t value, const char* option, int fallback) {
  if (value == 0 && fallback > 0) return fallback;
  if (value < 1 || value > 10'000'000)
    throw ConfigError("{} {}: expected an integer of at least 1.", option, value);
  return static_cast<int>(value);
}

Job job_of_plan(const SimulateArguments& arguments) {
  if (arguments.stages != 0 || !arguments.forward.empty() || !arguments.backward.empty() ||
      !arguments.replicas.empty() || !arguments.transfer.empty())
    throw ConfigError(
        "--plan sets stages, times, transfers and replicas; remove the options that set them too.");
  plan::PipelinePlan plan = plan::parse_plan(read_file(arguments.plan, 64 << 20), arguments.plan);
  if (!arguments.cluster.empty())
    plan = sim::on_levels(plan, plan::levels_of(cluster::read_topology(arguments.cluster)));
  Job job;
  job.request = sim::request_of(plan);
  job.costs = sim::costs_of(plan);
  job.predicted = sim::bottleneck_of(plan);
  if (!arguments.schedule.empty()) job.request.kind = plan::parse_schedule_kind(arguments.schedule);
  job.request.microbatches = count_of(arguments.microbatches, "--microbatches", 1);
  job.request.minibatches = count_of(arguments.minibatches, "--minibatches", kMinibatchesOfAPlan);
  return job;
}

Job job_of_options(const SimulateArguments& arguments) {
  if (!arguments.cluster.empty()) throw ConfigError("--cluster requires --plan.");
  if (arguments.schedule.empty())
    throw ConfigError("--schedule or --plan is required. `yoke simulate --help` shows both.");
  Job job;
  job.request.kind = plan::parse_schedule_kind(arguments.schedule);
  job.request.stages = count_of(arguments.stages, "--stages", 0);
  job.request.microbatches = count_of(arguments.microbatches, "--microbatches", 0);
  job.request.minibatches = count_of(arguments.minibatches, "--minibatches", 1);
  if (!arguments.replicas.empty()) job.request.replicas = replicas_of(arguments.replicas);
  job.costs.forward = times_of(arguments.forward, "--forward");
  job.costs.backward = times_of(arguments.backward, "--backward");
  if (!arguments.transfer.empty()) job.costs.transfer = times_of(arguments.transfer, "--transfer");
  return job;
}

Job job_of(const SimulateArguments& arguments) {
  Job job = arguments.plan.empty() ? job_of_options(arguments) : job_of_plan(arguments);
  const bool interleaved = job.request.kind == plan::ScheduleKind::kInterleaved;
  job.request.chunks = count_of(arguments.chunks, "--chunks", interleaved ? kInterleavedChunks : 1);
  job.request.vertical_sync = arguments.vertical_sync;
  if (!arguments.weight_backward.empty()) {
    if (job.request.kind != plan::ScheduleKind::kZbH1)
      throw ConfigError("--weight-backward: only zb-h1 splits the backward.");
    job.costs.weight_backward = times_of(arguments.weight_backward, "--weight-backward");
  }
  return job;
}

struct StageSummary {
  double busy = 0;  // per replica, mean
  int replicas = 0;
  int peak_activations = 0;
  int versions = 1;
};

std::vector<StageSummary> summarise(const plan::Schedule& schedule, const sim::PipelineRun& run) {
  std::vector<StageSummary> stages(static_cast<size_t>(schedule.request.stages));
  std::vector<plan::Occupancy> memory = plan::occupancy(schedule);
  for (size_t i = 0; i < schedule.workers.size(); ++i) {
    StageSummary& stage = stages[static_cast<size_t>(schedule.workers[i].stage)];
    stage.busy += run.busy[i];
    ++stage.replicas;
    stage.peak_activations = std::max(stage.peak_activations, memory[i].peak_activations);
    stage.versions = std::max(stage.versions, memory[i].versions);
  }
  for (StageSummary& stage : stages) stage.busy /= stage.replicas;
  return stages;
}

nlohmann::json document(const Job& job, const sim::PipelineRun& run,
                        const std::vector<StageSummary>& stages) {
  nlohmann::json out = {{"schedule", plan::to_string(job.request.kind)},
                        {"microbatches", job.request.microbatches},
                        {"minibatches", job.request.minibatches},
                        {"makespan", run.makespan},
                        {"bubble_fraction", run.bubble_fraction()},
                        {"seconds_per_microbatch", run.makespan / job.request.total()},
                        {"events", run.events},
                        {"stages", nlohmann::json::array()}};
  if (job.predicted > 0) out["bottleneck_seconds"] = job.predicted;
  for (const StageSummary& stage : stages) {
    out["stages"].push_back({{"busy", stage.busy},
                             {"idle", run.makespan - stage.busy},
                             {"peak_activations", stage.peak_activations},
                             {"versions", stage.versions},
                             {"replicas", stage.replicas}});
  }
  return out;
}

void print(const Job& job, const sim::PipelineRun& run, const std::vector<StageSummary>& stages) {
  fmt::print("{}: {} for {} micro-batches, {:.1f} % idle\n", plan::to_string(job.request.kind),
             format_duration(run.makespan), job.request.total(), 100 * run.bubble_fraction());
  if (job.predicted > 0)
    fmt::print("one minibatch every {}, including fill and drain; planned: {}\n",
               format_duration(run.makespan / job.request.minibatches), format_duration(job.predicted));
  report::Table table({"stage", "replicas", "busy", "idle", "activations", "versions"});
  for (size_t i = 0; i < stages.size(); ++i) {
    const StageSummary& stage = stages[i];
    table.add({std::to_string(i), std::to_string(stage.replicas), format_duration(stage.busy),
               format_duration(run.makespan - stage.busy), std::to_string(stage.peak_activations),
               std::to_string(stage.versions)});
  }
  fmt::print("\n{}",
             table.to_text(terminal::is_terminal(STDOUT_FILENO) ? terminal::width(STDOUT_FILENO) : 0));
}

std::string title_of(const plan::ScheduleRequest& request) {
  std::string text =
      fmt::format("{}, {} stage{}, {} micro-batch{}", plan::to_string(request.kind), request.stages,
                  request.stages == 1 ? "" : "s", request.total(), request.total() == 1 ? "" : "es");
  return request.chunks > 1 ? text + fmt::format(", {} chunks per device", request.chunks) : text;
}

}  // namespace

int simulate_schedule(const CommandLine& line) {
  Job job = job_of(line.simulate);
  plan::Schedule schedule = plan::make_schedule(job.request);
  sim::PipelineRun run = sim::simulate_pipeline(schedule, job.costs);
  if (!line.simulate.svg.empty())
    write_file_atomically(line.simulate.svg,
                          report::timeline_svg(title_of(job.request), {sim::timeline_of(schedule, run)}));
  if (!line.simulate.trace.empty())
    write_file_atomically(line.simulate.trace, sim::pipeline_trace(schedule, run));
  std::vector<StageSummary> stages = summarise(schedule, run);
  if (line.json)
    print_json(document(job, run, stages));
  else
    print(job, run, stages);
  return 0;
}

}  // namespace yoke::cli
