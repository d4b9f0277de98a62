#include "cli/report_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "cli/output.h"
#include "cli/pipeline_report.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/log.h"
#include "yoke/base/units.h"
#include "yoke/metrics/summary.h"
#include "yoke/report/runs_together.h"

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

// Names that tell the folders apart: what they do not share at the front.
std::vector<std::string> short_names(const std::vector<std::string>& folders) {
  std::vector<std::string> names;
  for (const std::string& folder : folders) {
    fs::path path = fs::path(folder).lexically_normal();
    if (path.filename().empty()) path = path.parent_path();
    names.push_back(path.filename().string());
  }
  for (size_t i = 0; i < names.size(); ++i)
    if (std::count(names.begin(), names.end(), names[i]) > 1) return folders;
  return names;
}

int report_together(const CommandLine& line) {
  const ReportArguments& arguments = line.report;
  if (!arguments.baseline.empty())
    throw ConfigError("--baseline {}: it is for the report of one run.", arguments.baseline);
  const std::vector<std::string> names = short_names(arguments.directories);
  std::vector<report::RunCurve> runs;
  for (size_t i = 0; i < names.size(); ++i)
    runs.push_back(report::curve_of(names[i], arguments.directories[i]));
  const double target = arguments.target_loss > 0 ? arguments.target_loss : report::common_target(runs);
  report::find_target(runs, target);
  const fs::path output = arguments.output.empty() ? fs::path("runs.html") : fs::path(arguments.output);
  std::vector<std::string> notes;
  nlohmann::json rows = nlohmann::json::array();
  for (const report::RunCurve& curve : runs) {
    for (const std::string& note : curve.run.notes) notes.push_back(curve.name + ": " + note);
    nlohmann::json row = {{"run", curve.run.path.string()}, {"name", curve.name}};
    if (!curve.run.records.empty()) row["final_loss"] = curve.run.records.back().loss;
    if (curve.seconds_to_target) row["seconds_to_target"] = *curve.seconds_to_target;
    if (curve.steps_to_target) row["steps_to_target"] = *curve.steps_to_target;
    if (curve.samples_to_target) row["samples_to_target"] = *curve.samples_to_target;
    if (curve.bytes_to_target) row["bytes_to_target"] = *curve.bytes_to_target;
    rows.push_back(std::move(row));
  }
  report::LabPage page = report::runs_page(runs, target);
  page.command = line.typed;
  write_file_atomically(output, page.html(notes));
  for (const std::string& note : notes) log::warn("{}", note);
  if (line.json)
    print_json({{"runs", rows}, {"target_loss", target}, {"report", output.string()}});
  else
    fmt::print("{}\n", output.string());
  return 0;
}

}  // namespace

int write_report(const CommandLine& line) {
  if (line.report.directories.size() > 1) return report_together(line);
  if (line.report.target_loss > 0)
    throw ConfigError("--target-loss {}: it compares several runs; there is one.", line.report.target_loss);
  const fs::path run = line.report.directories.front();
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
