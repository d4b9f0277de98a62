// yoke profile: the cost of each block of a model on this device.
#include <fmt/core.h>
#include <unistd.h>

#include "cli/output.h"
#include "cli/run_config.h"
#include "cli/torch/commands.h"
#include "cli/torch/worker_options.h"
#include "yoke/base/file.h"
#include "yoke/base/log.h"
#include "yoke/base/terminal.h"
#include "yoke/base/units.h"
#include "yoke/compute/device.h"
#include "yoke/engine/profile_model.h"
#include "yoke/report/table.h"

namespace yoke::cli {
namespace {

void print_profile(const plan::Profile& profile) {
  report::Table table({"block", "forward", "backward", "output", "weights"});
  double forward = 0, backward = 0;
  for (const plan::Layer& one : profile.layers) {
    table.add({one.name, format_duration(one.forward), format_duration(one.backward),
               format_bytes(one.activation_bytes), format_bytes(one.parameter_bytes)});
    forward += one.forward;
    backward += one.backward;
  }
  fmt::print("{}", table.to_text(terminal::is_terminal(STDOUT_FILENO) ? terminal::width(STDOUT_FILENO) : 0));
  fmt::print("{} samples on {}: forward {}, backward {}\n", profile.batch, profile.device,
             format_duration(forward), format_duration(backward));
}

}  // namespace

int run_profile(const CommandLine& line) {
  Configuration configuration;
  configuration.load(line.profile.file, line.overrides);
  const RunConfig& config = configuration.values;
  engine::WorkerOptions options = worker_options(config);
  options.pipeline = {};
  auto worker = engine::make_worker(options);
  log::info("profile: {} samples of {}, block by block", config.data.batch_size, config.model.name);
  const engine::ProfileOptions how{.repeats = line.profile.repeats};
  plan::Profile profile = line.profile.blocks ? engine::profile_model(*worker, config.data.batch_size, how)
                                              : engine::profile_graph(*worker, config.data.batch_size, how);
  profile.device = compute::device_name(worker->device);
  if (profile.device.empty()) profile.device = worker->device.str();
  std::string text = plan::to_json(profile);
  if (!line.profile.output.empty()) write_file_atomically(line.profile.output, text + "\n");
  if (line.json)
    fmt::print("{}\n", text);
  else if (!line.quiet || line.profile.output.empty())
    print_profile(profile);
  return 0;
}

}  // namespace yoke::cli
