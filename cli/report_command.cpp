#include "cli/report_command.h"

#include <fmt/core.h>

#include <filesystem>

#include "cli/output.h"
#include "cli/pipeline_report.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/log.h"
#include "yoke/base/units.h"
#include "yoke/metrics/summary.h"

namespace yoke::cli {
namespace {

namespace fs = std::filesystem;

metrics::Summary summary_of(const fs::path& run) {
  fs::path file = run / "summary.json";
  if (!fs::exists(file)) throw ConfigError("{}: no summary.json. A run writes it at the end.", run.string());
  try {
    return metrics::parse_summary(read_file(file));
  } catch (const ConfigError& error) {
    throw ConfigError("{}: {} Remove the file for a report without it.", file.string(), error.what());
  }
}

// Adds the comparison with a one-device run to the run's summary.
metrics::Summary compare(const fs::path& run, const fs::path& baseline) {
  metrics::Summary all = summary_of(run), one = summary_of(baseline);
  if (one.world_size != 1 || one.model != all.model || one.data != all.data || one.precision != all.precision)
    throw ConfigError(
        "{} is not a baseline of {}: it must be the same model, data and precision on one worker.",
        baseline.string(), run.string());
  all.one_device_samples_per_s = one.samples_per_s;
  all.scaling_efficiency = all.samples_per_s / (static_cast<double>(all.world_size) * one.samples_per_s);
  write_file_atomically(run / "summary.json", metrics::to_json(all).dump(2) + "\n");
  return all;
}

}  // namespace

int write_report(const CommandLine& line) {
  const fs::path run = line.report.directory;
  fs::path output = line.report.output;
  if (output.empty()) output = run / "report.html";
  nlohmann::json result = {{"report", output.string()}};
  if (!line.report.baseline.empty()) {
    metrics::Summary summary = compare(run, line.report.baseline);
    result["scaling_efficiency"] = *summary.scaling_efficiency;
    if (!line.json)
      fmt::print("scaling efficiency {:.1f} %: {} workers {} samples/s, one {}\n",
                 100 * *summary.scaling_efficiency, summary.world_size, format_short(summary.samples_per_s),
                 format_short(*summary.one_device_samples_per_s));
  }
  // Written atomically: one that cannot be read was damaged, and its figures are not to be trusted.
  if (fs::exists(run / "summary.json")) summary_of(run);
  RunReport written = write_run_report(run, output);
  for (const std::string& note : written.notes) log::warn("{}", note);
  if (!written.notes.empty()) result["notes"] = written.notes;
  if (const auto& pipeline = written.pipeline) {
    result["pipeline"] = {{"measured_seconds", pipeline->measured.makespan},
                          {"simulated_seconds", pipeline->simulated.makespan},
                          {"error_percent", pipeline->error_percent()},
                          {"measured_bubble_fraction", pipeline->measured.idle_fraction()},
                          {"simulated_bubble_fraction", pipeline->simulated.idle_fraction()}};
    if (!line.json)
      fmt::print("pipeline: measured {}, simulated {} ({:+.1f} %)\n",
                 format_duration(pipeline->measured.makespan), format_duration(pipeline->simulated.makespan),
                 pipeline->error_percent());
  }
  if (line.json)
    print_json(result);
  else
    fmt::print("{}\n", output.string());
  return 0;
}

}  // namespace yoke::cli
