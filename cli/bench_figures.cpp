#include "cli/bench_figures.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>

#include "cli/bench_scaling_command.h"
#include "yoke/base/units.h"
#include "yoke/cluster/launch_env.h"
#include "yoke/report/svg_chart.h"

namespace yoke::cli {
namespace {

using Json = nlohmann::json;

// The values of `keys` that differ between rows, as a name for a curve.
std::string curve_name(const Json& rows, const Json& row, const std::vector<const char*>& keys) {
  std::string name;
  for (const char* key : keys) {
    const bool differs =
        std::any_of(rows.begin(), rows.end(), [&](const Json& other) { return other[key] != rows[0][key]; });
    if (!differs && key != keys.front()) continue;
    name +=
        (name.empty() ? "" : " ") + (row[key].is_string() ? row[key].get<std::string>() : row[key].dump());
  }
  return name;
}

std::vector<report::Series> curves(const Json& rows, const std::vector<const char*>& keys,
                                   const std::function<report::Point(const Json&)>& point) {
  std::vector<report::Series> series;
  for (const Json& row : rows) {
    const std::string name = curve_name(rows, row, keys);
    auto found =
        std::find_if(series.begin(), series.end(), [&](const auto& one) { return one.name == name; });
    if (found == series.end())
      found = series.insert(found, {.name = name, .colour = static_cast<int>(series.size()) + 1});
    found->points.push_back(point(row));
  }
  for (report::Series& one : series)
    std::sort(one.points.begin(), one.points.end(), [](auto& a, auto& b) { return a.x < b.x; });
  return series;
}

std::string count_text(const Json& value) {
  return format_short(value.get<double>());
}

double median_of(const Json& row) {
  return row["step_seconds"]["median"];
}

}  // namespace

report::LabPage titled(report::LabPage page, const CommandLine& line) {
  page.command = cluster::inherited_command().value_or(line.typed);  // a rank has no --nproc
  return page;
}

report::LabPage step_figures(const nlohmann::json& rows) {
  report::LabPage page;
  page.title = "Training steps";
  const std::vector<const char*> keys = {"model", "precision", "device", "recompute"};
  report::LineChart speed{.title = "Samples per second",
                          .x_label = "batch size",
                          .y_label = "samples/s",
                          .log = true,
                          .log_x = true};
  speed.series = curves(rows, keys, [](const Json& row) {
    return report::Point{row["batch"], row["samples_per_s"]};
  });
  report::LineChart memory{.title = "Peak memory",
                           .x_label = "batch size",
                           .y_label = "peak memory",
                           .unit = report::Unit::kBytes,
                           .from_zero = true,
                           .log_x = true};
  memory.series = curves(rows, keys, [](const Json& row) {
    return report::Point{row["batch"], row["peak_memory_bytes"]};
  });
  page.add({"speed", "Samples per second", report::to_svg(speed)});
  page.add({"memory", "Peak memory", report::to_svg(memory)});
  report::LabTable table{{"model", "batch", "samples/s", "step", "TFLOP/s", "of peak", "memory"}, {}};
  for (const Json& row : rows)
    table.rows.push_back({curve_name(rows, row, keys), row["batch"].dump(), count_text(row["samples_per_s"]),
                          format_duration(median_of(row)), fmt::format("{:.3g}", row["tflops"].get<double>()),
                          fmt::format("{:.0f} %", 100 * row["peak_fraction"].get<double>()),
                          format_bytes(row["peak_memory_bytes"])});
  page.add(table);
  return page;
}

report::LabPage scaling_figures(const nlohmann::json& rows) {
  report::LabPage page;
  page.title = "Scaling";
  const std::vector<const char*> keys = {"model", "batch", "precision", "bucket_bytes"};
  report::LineChart chart{.title = "Speed-up", .x_label = "ranks", .y_label = "speed-up", .from_zero = true};
  chart.series = curves(rows, keys, [](const Json& row) {
    const double ranks = row["nproc"];
    return report::Point{ranks, ranks * row["scaling_efficiency"].get<double>()};
  });
  double most = 1;
  for (const Json& row : rows) most = std::max(most, row["nproc"].get<double>());
  chart.series.push_back({.name = "ideal", .points = {{1, 1}, {most, most}}, .colour = 6, .theory = true});
  page.add({"speedup", "Speed-up", report::to_svg(chart),
            "Samples per second relative to one rank, same batch per replica."});
  report::StackedBars time{.title = "Where the time of a step goes",
                           .x_label = "ranks",
                           .y_label = "time per step",
                           .unit = report::Unit::kSeconds,
                           .layers = {"compute", "exposed communication", "waiting", "not divided"}};
  report::LabTable table{{"model", "ranks", "step", "samples/s", "efficiency", "exposed", "sent/step"}, {}};
  double at = 0;
  for (const Json& row : rows) {
    const StepTime parts = step_time(row);
    time.bars.push_back({at,
                         at + 0.8,
                         {parts.compute, parts.communication, parts.waiting, parts.undivided},
                         row["nproc"].dump()});
    table.rows.push_back({curve_name(rows, row, keys), row["nproc"].dump(), format_duration(median_of(row)),
                          count_text(row["samples_per_s"]),
                          fmt::format("{:.1f} %", 100 * row["scaling_efficiency"].get<double>()),
                          format_duration(parts.communication), format_bytes(row["bytes_sent"])});
    ++at;
  }
  page.add(
      {"time", "Where the time goes", report::to_svg(time),
       "Compute: the step of the same ranks without communication; in a pipeline the passes and the update "
       "of a stage. Waiting: for slower ranks; in a pipeline bubbles and messages. Not divided: with tensor "
       "parallelism computing and communication are not separated."});
  page.add(table);
  return page;
}

report::LabPage collectives_figures(const nlohmann::json& rows) {
  report::LabPage page;
  page.title = "Collectives";
  page.about =
      fmt::format("{} ranks over {}", rows[0]["ranks"].get<int>(), rows[0]["backend"].get<std::string>());
  const std::vector<const char*> keys = {"op", "algorithm"};
  auto positive = [](const Json& value) { return std::max(1e-9, value.get<double>()); };
  report::LineChart time{.title = "Time against bytes",
                         .x_label = "bytes",
                         .y_label = "time",
                         .unit = report::Unit::kSeconds,
                         .log = true,
                         .log_x = true,
                         .x_unit = report::Unit::kBytes};
  time.series = curves(rows, keys, [&](const Json& row) {
    return report::Point{std::max(1.0, row["bytes"].get<double>()), positive(row["seconds"]["median"])};
  });
  report::LineChart rate{.title = "Bus bandwidth against bytes",
                         .x_label = "bytes",
                         .y_label = "bytes per second",
                         .unit = report::Unit::kBytes,
                         .from_zero = true,
                         .log_x = true,
                         .x_unit = report::Unit::kBytes};
  rate.series = curves(rows, keys, [](const Json& row) {
    return report::Point{std::max(1.0, row["bytes"].get<double>()), row["busbw"]};
  });
  page.add({"time", "Time", report::to_svg(time), "Medians."});
  page.add({"busbw", "Bus bandwidth", report::to_svg(rate),
            "As nccl-tests define it: independent of the number of ranks."});
  report::LabTable table{{"collective", "bytes", "median", "p95", "algbw", "busbw", "correct"}, {}};
  for (const Json& row : rows)
    table.rows.push_back({curve_name(rows, row, keys), format_bytes(row["bytes"]),
                          format_duration(row["seconds"]["median"]), format_duration(row["seconds"]["p95"]),
                          format_bytes(row["algbw"]) + "/s", format_bytes(row["busbw"]) + "/s",
                          row["correct"].get<bool>() ? "yes" : "NO"});
  page.add(table);
  return page;
}

}  // namespace yoke::cli
