#include "cli/torch/train_output.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cmath>

#include "cli/output.h"
#include "cli/pipeline_report.h"
#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/log.h"
#include "yoke/base/units.h"
#include "yoke/cluster/launch_env.h"
#include "yoke/compute/device.h"
#include "yoke/data/formats/text/tokenizer_file.h"
#include "yoke/metrics/catch_up.h"
#include "yoke/metrics/console.h"
#include "yoke/metrics/jsonl.h"
#include "yoke/metrics/quantiles.h"
#include "yoke/metrics/tensorboard.h"
#include "yoke/metrics/trace_merge.h"

namespace yoke::cli {

RunFolder::RunFolder(std::filesystem::path path, const Configuration& configuration, const CommandLine& line)
    : path_(std::move(path)),
      config_(configuration.values),
      line_(line),
      epochs_given_(configuration.schema.at("train.epochs").origin != "built-in"),
      started_(wall_seconds()) {
  write_file_atomically(path_ / "config.toml", configuration.schema.to_toml());
  if (const auto tokenizer = data::tokenizer_of(config_.data.name, config_.data.dir))
    write_file_atomically(path_ / data::kTokenizerName, read_file(*tokenizer, data::kMostTokenizerBytes));
}

void RunFolder::attach_sinks(engine::Engine& engine, std::vector<metrics::Record> recent) {
  engine.attach(std::make_unique<metrics::Console>(metrics::console_on(STDERR_FILENO, line_.quiet)));
  auto files = std::make_unique<metrics::CatchUp>(path_ / "metrics.jsonl", std::move(recent));
  files->add(std::make_unique<metrics::JsonLines>(path_ / "metrics.jsonl"));
  if (config_.out.tensorboard) files->add(std::make_unique<metrics::TensorBoard>(path_));
  engine.attach(std::move(files));
}

void attach_trace(engine::Engine& engine, const std::filesystem::path& out, int rank, int ranks) {
  std::filesystem::create_directories(out / "trace");
  metrics::TraceOptions options;
  options.rank = rank;
  options.world_size = ranks;
  options.zero = now_seconds();
  auto trace = std::make_unique<metrics::Trace>(out / "trace" / fmt::format("rank-{}.json", rank), options);
  engine.attach_trace(trace.get());
  engine.attach(std::move(trace));
}

metrics::RunInfo RunFolder::run_info(const models::Model& model, const engine::LoopPlan& plan,
                                     int64_t first_step) const {
  metrics::RunInfo info;
  info.name = fmt::format("{} on {}", config_.model.name, config_.data.name);
  info.total_steps = plan.total_steps;
  info.first_step = first_step;
  info.tokens = model.sample.kind == SampleKind::kTokens;
  return info;
}

// train.steps may cut a training of train.epochs short: then these are what the whole of it takes.
void RunFolder::put_compute(metrics::Summary& summary, const engine::Outcome& outcome,
                            const engine::LoopPlan& plan, const engine::Worker& worker) const {
  const double flops = worker.model.step_flops_per_sample;
  const auto samples = static_cast<double>(outcome.samples);
  if (flops > 0) summary.train_flops = flops * samples;
  if (outcome.epochs <= 0 || summary.samples_per_s <= 0 || samples <= 0) return;
  const double planned = outcome.epochs * static_cast<double>(plan.total_steps) /
                         static_cast<double>(std::max<int64_t>(1, outcome.steps));
  const bool cut = config_.train.loop.steps > 0 && epochs_given_;
  metrics::WholeTraining whole;
  whole.epochs = cut ? config_.train.loop.epochs : planned;
  const double all = whole.epochs * samples / outcome.epochs;
  whole.seconds = all / summary.samples_per_s;
  if (flops > 0) whole.flops = flops * all;
  summary.whole_training = whole;
}

metrics::Summary RunFolder::summarise(const engine::Outcome& outcome, const engine::LoopPlan& plan,
                                      const engine::Worker& worker,
                                      const std::optional<metrics::Summary>& kept,
                                      std::optional<int64_t> resumed_from) const {
  metrics::Summary summary;
  summary.model = config_.model.name;
  summary.data = config_.data.name;
  summary.optimizer = config_.train.optimizer.optimizer;
  summary.precision = config_.train.compute.precision;
  summary.device = config_.train.compute.device;
  summary.device_name = compute::device_name(worker.device);
  summary.steps = outcome.steps;
  summary.epochs = outcome.epochs;
  summary.final_loss = outcome.final_loss;
  if (outcome.evaluation) {
    summary.accuracy = outcome.evaluation->accuracy;
    summary.eval_loss = outcome.evaluation->loss;
    if (plan.tokens_per_sample > 0) summary.perplexity = std::exp(outcome.evaluation->loss);
    summary.top5_accuracy = outcome.evaluation->classes.top5;
    summary.classes = outcome.evaluation->classes.results;
  }
  summary.step_seconds = {metrics::median(outcome.step_seconds), metrics::p95(outcome.step_seconds)};
  if (!outcome.step_seconds.empty()) {
    auto steps = static_cast<double>(outcome.step_seconds.size());
    summary.samples_per_s = static_cast<double>(outcome.own_samples) / steps / summary.step_seconds.median;
  } else if (kept) {
    summary.step_seconds = kept->step_seconds;
    summary.samples_per_s = kept->samples_per_s;
  }
  if (plan.tokens_per_sample > 0)
    summary.tokens_per_s = summary.samples_per_s * static_cast<double>(plan.tokens_per_sample);
  put_compute(summary, outcome, plan, worker);
  summary.parameters = worker.parameters;
  summary.seconds = outcome.seconds;
  summary.resumed_from = resumed_from;
  summary.started = metrics::utc_time(started_);
  summary.command = cluster::inherited_command().value_or(line_.typed);
  return summary;
}

void RunFolder::join_traces() const {
  if (!config_.out.trace) return;
  std::optional<metrics::MergedTrace> merged = metrics::merge_traces(path_ / "trace");
  if (merged && merged->straggler()) log::info("trace: {}", merged->straggler_text());
}

void RunFolder::finish(const metrics::Summary& summary, const parallel::RunEnd& end) const {
  for (const auto& [file, text] : end.reports) write_file_atomically(path_ / file, text);
  write_file_atomically(path_ / "summary.json", metrics::to_json(summary).dump(2) + "\n");
  if (config_.out.report) write_run_report(path_, path_ / "report.html");
}

void finish_run(const RunFolder& folder, const metrics::Summary& summary, const parallel::RunEnd& end,
                checkpoint::Writer& writer, parallel::Strategy& strategy) {
  try {
    folder.join_traces();
    folder.finish(summary, end);
  } catch (const Error& error) {
    try {
      writer.confirm();
    } catch (const CheckpointError& state) {  // a full disk affects both
      throw CheckpointError("{} {}", state.what(), error.what());
    }
    throw;
  }
  writer.confirm();
  if (!end.problem) return;
  strategy.failed(*end.problem);
  throw CommError("{}; its records are complete", end.problem->what());
}

namespace {

std::string compute_text(double flops) {
  return fmt::format("{:.3g} FLOPs, {:.3g} PFLOP-days", flops, metrics::pflop_days(flops));
}

void print_compute(const metrics::Summary& summary) {
  if (summary.train_flops) fmt::print("  compute     {}\n", compute_text(*summary.train_flops));
  if (!summary.whole_training || summary.whole_training->epochs <= summary.epochs * 1.001) return;
  const metrics::WholeTraining& whole = *summary.whole_training;
  fmt::print("  in all      {:.6g} epochs: {} at this speed{}\n", whole.epochs,
             format_duration(whole.seconds), whole.flops ? ", " + compute_text(*whole.flops) : "");
}

}  // namespace

void print_summary(const CommandLine& line, const metrics::Summary& summary, const RunConfig& config) {
  if (line.json) {
    print_json(metrics::to_json(summary));
    return;
  }
  fmt::print("{} on {}: {} steps ({:.2f} epochs) in {}\n", summary.model, summary.data, summary.steps,
             summary.epochs, format_duration(summary.seconds));
  fmt::print("  loss        {:.4f}\n", summary.final_loss);
  if (summary.eval_loss) fmt::print("  test loss   {:.4f}\n", *summary.eval_loss);
  if (summary.perplexity) fmt::print("  perplexity  {:.2f}\n", *summary.perplexity);
  if (summary.accuracy) fmt::print("  accuracy    {:.2f} %\n", 100 * *summary.accuracy);
  if (summary.samples_per_s > 0) {
    fmt::print("  speed       {} samples/s", format_short(summary.samples_per_s));
    if (summary.tokens_per_s) fmt::print(", {} tokens/s", format_short(*summary.tokens_per_s));
    fmt::print(" (step {}, p95 {})\n", format_duration(summary.step_seconds.median),
               format_duration(summary.step_seconds.p95));
  }
  print_compute(summary);
  if (!summary.peak_memory_bytes.empty())
    fmt::print("  memory      {}\n", format_bytes(static_cast<double>(summary.peak_memory_bytes.front())));
  fmt::print("  parameters  {} ({})\n", format_count(static_cast<double>(summary.parameters)),
             summary.parameter_hash);
  if (config.out.report) fmt::print("  report      {}/report.html\n", config.out.dir);
}

void print_end(const CommandLine& line, const metrics::Summary& summary, const RunConfig& config, int code,
               int64_t total_steps) {
  if (code == 0) return print_summary(line, summary, config);
  log::info("stopped at step {} of {}; {}", summary.steps, total_steps,
            config.checkpoint.every_steps > 0 ? "run the same command again to resume"
                                              : "nothing was saved (checkpoint.every_steps = 0)");
}

}  // namespace yoke::cli
