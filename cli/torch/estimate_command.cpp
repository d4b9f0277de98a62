// yoke estimate: what a whole training takes, from a few measured steps of one replica.
#include <fmt/core.h>

#include <algorithm>

#include "cli/lab_devices.h"
#include "cli/output.h"
#include "cli/run_checks.h"
#include "cli/run_config.h"
#include "cli/torch/commands.h"
#include "cli/torch/worker_options.h"
#include "cli/training_estimate.h"
#include "yoke/base/log.h"
#include "yoke/base/text.h"
#include "yoke/base/units.h"
#include "yoke/data/dataset.h"
#include "yoke/engine/bench_step.h"
#include "yoke/models/model.h"
#include "yoke/report/table.h"

namespace yoke::cli {
namespace {

std::vector<std::string> device_names(const std::string& wanted) {
  if (wanted != "all") return split(wanted, ',');
  std::vector<std::string> names;
  for (const KnownDevice& device : known_devices()) names.emplace_back(device.name);
  return names;
}

int64_t samples_of(const RunConfig& config, const SampleSpec& sample, int64_t given) {
  if (given > 0) return given;
  return data::open(config.data, data::Split::kTrain, sample, static_cast<uint64_t>(config.train.loop.seed))
      ->size();
}

TrainingSize size_of(const Configuration& configuration, const models::Model& model,
                     const EstimateArguments& arguments) {
  const RunConfig& config = configuration.values;
  const engine::LoopOptions& loop = config.train.loop;
  TrainingSize size;
  size.samples = samples_of(config, model.sample, arguments.samples);
  size.epochs = loop.epochs;
  // As in a summary: train.steps may cut a training of train.epochs short.
  const bool whole = configuration.schema.at("train.epochs").origin != "built-in";
  if (!whole || loop.epochs == 0) size.steps = loop.steps;
  size.batch = config.data.batch_size;
  size.replicas = arguments.replicas;
  size.accumulate = loop.accumulate;
  if (loop.accumulate_tokens > 0) {
    const int64_t length = config.data.seq_len > 0 ? config.data.seq_len : model.sample.shape.at(0);
    const int64_t tokens = size.batch * size.replicas * length;
    size.accumulate = (loop.accumulate_tokens + tokens - 1) / tokens;
  }
  size.drop_last = config.data.drop_last;
  size.flops_per_sample = model.step_flops_per_sample;
  return size;
}

// One replica by itself: how it talks to others is not measured.
double measured_speed(const RunConfig& config, const EstimateArguments& arguments) {
  if (arguments.steps == 0) return 0;
  RunConfig alone = config;
  static_cast<parallel::Choices&>(alone) = {};
  if (arguments.batch > 0) alone.data.batch_size = arguments.batch;
  check_memory(alone);
  engine::WorkerOptions options = worker_options(alone);
  options.accumulate = 1;
  options.copies_state = false;
  options.batches_ahead = 0;
  log::info("estimate: {} steps of {} samples on {}", arguments.steps, options.batch_size,
            config.train.compute.device);
  return engine::bench_step(options, arguments.steps).samples_per_s;
}

nlohmann::json to_json(const TrainingEstimate& estimate, const TrainingSize& size,
                       const EstimateArguments& arguments, double samples_per_s) {
  nlohmann::json out = {{"samples", size.samples},
                        {"epochs", estimate.epochs},
                        {"steps", estimate.steps},
                        {"batch", size.batch},
                        {"replicas", size.replicas},
                        {"accumulate", size.accumulate},
                        {"utilisation", arguments.utilisation}};
  if (estimate.flops > 0) {
    out["flops_per_sample"] = size.flops_per_sample;
    out["train_flops"] = estimate.flops;
    out["train_pflop_days"] = estimate.pflop_days;
  }
  if (samples_per_s > 0) {
    out["here"] = {{"samples_per_s", samples_per_s}, {"seconds", estimate.seconds_here}};
    if (estimate.flops > 0) out["here"]["flops"] = samples_per_s * size.flops_per_sample;
  }
  out["devices"] = nlohmann::json::array();
  for (const DeviceTime& device : estimate.devices)
    out["devices"].push_back({{"device", device.device},
                              {"year", device.year},
                              {"peak_flops", device.peak},
                              {"seconds", device.seconds}});
  return out;
}

std::string hours(double seconds) {
  return fmt::format("{:.3g}", seconds / 3600);
}

void print(const TrainingEstimate& estimate, const TrainingSize& size, const RunConfig& config,
           const EstimateArguments& arguments, double samples_per_s) {
  const std::string sums = size.accumulate > 1 ? fmt::format(", {} batches each", size.accumulate) : "";
  fmt::print("{} on {}: {:.6g} epochs of {} samples\n", config.model.name, config.data.name, estimate.epochs,
             format_count(static_cast<double>(size.samples)));
  fmt::print("  steps     {}{}; batch {} on {} replica{}\n",
             format_count(static_cast<double>(estimate.steps)), sums, size.batch, size.replicas,
             size.replicas == 1 ? "" : "s");
  if (estimate.flops > 0)
    fmt::print("  compute   {:.3g} FLOPs, {:.3g} PFLOP-days; {:.3g} FLOPs a sample\n", estimate.flops,
               estimate.pflop_days, size.flops_per_sample);
  else
    fmt::print("  compute   not known: the model does not count its operations\n");
  report::Table table({"device", "year", "peak TFLOP/s", "used", "hours", "time"});
  if (samples_per_s > 0)
    table.add({fmt::format("here, {} samples/s", format_short(samples_per_s)), "", "",
               estimate.flops > 0
                   ? fmt::format("{:.3g} TFLOP/s", samples_per_s * size.flops_per_sample / 1e12)
                   : "",
               hours(estimate.seconds_here), format_duration(estimate.seconds_here)});
  for (const DeviceTime& device : estimate.devices)
    table.add({device.device, fmt::format("{}", device.year), fmt::format("{:.4g}", device.peak / 1e12),
               fmt::format("{:.3g} %", 100 * arguments.utilisation), hours(device.seconds),
               format_duration(device.seconds)});
  fmt::print("\n{}", table.to_text(0));
  fmt::print(
      "\nHere: measured, without data, evaluations and communication. Devices: {:.3g} % of published peaks\n"
      "(--utilisation), V100 and later in 16 bits. {} of each.\n",
      100 * arguments.utilisation,
      size.replicas == 1 ? "One" : format_count(static_cast<double>(size.replicas)));
}

}  // namespace

int run_estimate(const CommandLine& line) {
  const EstimateArguments& arguments = line.estimate;
  Configuration configuration;
  configuration.load(arguments.file, line.overrides);
  const RunConfig& config = configuration.values;
  const models::Model model = models::lay_out(config.model);
  const TrainingSize size = size_of(configuration, model, arguments);
  const std::vector<std::string> names = device_names(arguments.devices);
  estimate_training(size, 0, arguments.utilisation, names);  // what is wrong is said before the measurement
  const double speed = measured_speed(config, arguments);
  const TrainingEstimate estimate = estimate_training(size, speed, arguments.utilisation, names);
  if (line.json)
    print_json(to_json(estimate, size, arguments, speed));
  else
    print(estimate, size, config, arguments, speed);
  return 0;
}

}  // namespace yoke::cli
