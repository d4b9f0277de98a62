// yoke verify: compares parallel layouts with one device.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>

#include "cli/output.h"
#include "cli/torch/commands.h"
#include "cli/torch/worker_options.h"
#include "cli/verify_layouts.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/base/terminal.h"
#include "yoke/engine/measured_parts.h"
#include "yoke/engine/verify.h"
#include "yoke/models/keys.h"
#include "yoke/report/table.h"

namespace yoke::cli {
namespace {

// Different random numbers on different ranks are not an error: layouts are compared without any.
void switch_off_dropout(RunConfig& config) {
  if (models::uses_key(config.model.name, "dropout")) config.model.dropout = 0;
}

// JSON has no infinity, and null is below every number for jq.
constexpr double kInfinityInJson = 1e308;

nlohmann::json to_json(const std::string& layout, const engine::Verification& result, bool ok) {
  auto number = [](double apart) { return std::min(apart, kInfinityInJson); };
  return {{"layout", layout},
          {"loss", result.loss},
          {"max_diff",
           {{"loss", number(result.worst.loss)},
            {"gradient", number(result.worst.gradient)},
            {"parameter", number(result.worst.parameter)}}},
          {"ok", ok}};
}

// One device with the model, data and optimizer of the layout.
engine::WorkerOptions alone_options(RunConfig config) {
  static_cast<parallel::Choices&>(config) = {};
  config.train.loop.accumulate = 1;
  config.train.loop.sync_batchnorm = false;
  return worker_options(config);
}

// The layout as `train` would create it.
engine::VerifyOptions verify_options(LayoutConfiguration& layout, const VerifyArguments& arguments) {
  RunConfig& config = layout.configuration.values;
  switch_off_dropout(config);
  engine::VerifyOptions options;
  options.layout = layout.text;
  options.data = config.data;
  options.steps = arguments.steps;
  options.type = arguments.dtype == "fp64" ? torch::kFloat64 : torch::kFloat32;
  options.ranks = layout.ranks;
  options.alone = alone_options(config);
  options.parallel = worker_options(config);
  if (config.parallel.partition == "auto")
    options.parallel.node_parts =
        engine::measured_parts(*engine::make_worker(options.alone), config.data.batch_size,
                               static_cast<int>(config.parallel.pipeline));
  else if (!config.parallel.partition.empty())
    options.parallel.node_parts = engine::parts_of_file(config.model, config.parallel.partition);
  options.parallel.batch_size = config.data.batch_size / layout.copies / config.train.loop.accumulate;
  return options;
}

}  // namespace

int run_verify(const CommandLine& line) {
  const VerifyArguments& arguments = line.verify;
  std::vector<std::unique_ptr<LayoutConfiguration>> layouts = layout_configurations(line);
  double dropout = layouts.front()->configuration.values.model.dropout;
  if (dropout > 0) log::info("model.dropout = {} is switched off: ranks draw numbers of their own", dropout);
  double tolerance =
      arguments.tolerance > 0 ? arguments.tolerance : (arguments.dtype == "fp64" ? 1e-10 : 1e-4);

  nlohmann::json rows = nlohmann::json::array();
  std::vector<double> reference;
  report::Table table({"layout", "loss", "gradient", "parameter", ""});
  bool all_ok = true;
  for (const auto& layout : layouts) {
    log::info("verify: {} steps of {} beside one device", arguments.steps, layout->text);
    engine::Verification result = engine::verify(verify_options(*layout, arguments));
    bool ok = result.worst.largest() <= tolerance;
    all_ok = all_ok && ok;
    reference = result.reference_loss;
    rows.push_back(to_json(layout->text, result, ok));
    table.add({layout->text, fmt::format("{:.1e}", result.worst.loss),
               fmt::format("{:.1e}", result.worst.gradient), fmt::format("{:.1e}", result.worst.parameter),
               ok ? "equal" : "DIFFERENT"});
  }
  if (line.json) {
    print_json(
        {{"reference", {{"loss", reference}}}, {"layouts", rows}, {"tolerance", tolerance}, {"ok", all_ok}});
  } else {
    fmt::print("{}",
               table.to_text(terminal::is_terminal(STDOUT_FILENO) ? terminal::width(STDOUT_FILENO) : 0));
    fmt::print("largest differences from one device over {} steps, {}; tolerance {:.0e}\n", arguments.steps,
               arguments.dtype, tolerance);
  }
  return all_ok ? 0 : static_cast<int>(ExitCode::kVerification);
}

}  // namespace yoke::cli
