// yoke verify: parallel layouts beside one device.
#include <fmt/core.h>
#include <unistd.h>

#include "cli/output.h"
#include "cli/run_config.h"
#include "cli/torch/commands.h"
#include "cli/torch/worker_options.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/base/terminal.h"
#include "yoke/engine/verify.h"
#include "yoke/models/keys.h"
#include "yoke/report/table.h"

namespace yoke::cli {
namespace {

// Different random numbers on different ranks are no error: layouts are compared without any.
void switch_off_dropout(RunConfig& config) {
  if (config.model.dropout > 0)
    log::info("model.dropout = {} is switched off: ranks draw numbers of their own", config.model.dropout);
  if (models::uses_key(config.model.name, "dropout")) config.model.dropout = 0;
}

nlohmann::json to_json(const engine::Layout& layout, const engine::Verification& result, bool ok) {
  return {{"layout", layout.text},
          {"loss", result.loss},
          {"max_diff",
           {{"loss", result.worst.loss},
            {"gradient", result.worst.gradient},
            {"parameter", result.worst.parameter}}},
          {"ok", ok}};
}

}  // namespace

int run_verify(const CommandLine& line) {
  const VerifyArguments& arguments = line.verify;
  std::vector<engine::Layout> layouts = engine::parse_layouts(arguments.layouts);
  Configuration configuration;
  configuration.load(arguments.file, line.overrides);
  RunConfig& config = configuration.values;
  switch_off_dropout(config);
  bool doubles = arguments.dtype == "fp64";
  double tolerance = arguments.tolerance > 0 ? arguments.tolerance : (doubles ? 1e-10 : 1e-4);
  engine::VerifyOptions options;
  options.worker = worker_options(config);
  options.data = config.data;
  options.steps = arguments.steps;
  options.type = doubles ? torch::kFloat64 : torch::kFloat32;

  nlohmann::json rows = nlohmann::json::array();
  std::vector<double> reference;
  report::Table table({"layout", "loss", "gradient", "parameter", ""});
  bool all_ok = true;
  for (const engine::Layout& layout : layouts) {
    log::info("verify: {} steps of {} beside one device", arguments.steps, layout.text);
    engine::Verification result = engine::verify(options, layout);
    bool ok = result.worst.largest() <= tolerance;
    all_ok = all_ok && ok;
    reference = result.reference_loss;
    rows.push_back(to_json(layout, result, ok));
    table.add({layout.text, fmt::format("{:.1e}", result.worst.loss),
               fmt::format("{:.1e}", result.worst.gradient), fmt::format("{:.1e}", result.worst.parameter),
               ok ? "equal" : "DIFFERENT"});
  }
  if (line.json) {
    print_json(
        {{"reference", {{"loss", reference}}}, {"layouts", rows}, {"tolerance", tolerance}, {"ok", all_ok}});
  } else {
    fmt::print("{}",
               table.to_text(terminal::is_terminal(STDOUT_FILENO) ? terminal::width(STDOUT_FILENO) : 0));
    fmt::print("largest differences from one device over {} steps, {}; at most {:.0e} is equal\n",
               arguments.steps, arguments.dtype, tolerance);
  }
  return all_ok ? 0 : static_cast<int>(ExitCode::kVerification);
}

}  // namespace yoke::cli
