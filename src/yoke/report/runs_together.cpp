#include "yoke/report/runs_together.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "yoke/base/error.h"
#include "yoke/base/units.h"
#include "yoke/report/svg_chart.h"

namespace yoke::report {
namespace {

constexpr double kReachedByEach = 1.001;  // times the worst of the best losses

// Over all workers, where the scheduler of parameter servers has recorded them.
std::vector<metrics::Record> losses_of(const RunFolder& run) {
  return with_curve(run.records, run.server_losses);
}

double busiest(const metrics::AxisBytes& bytes) {
  double most = 0;
  for (size_t rank = 0; rank < bytes.data.size(); ++rank) {
    auto of = [&](const std::vector<int64_t>& axis) {
      return rank < axis.size() ? static_cast<double>(axis[rank]) : 0;
    };
    most = std::max(most, of(bytes.pipeline) + of(bytes.data) + of(bytes.tensor));
  }
  return most;
}

using X = std::function<double(const RunCurve&, const metrics::Record&)>;

LabFigure losses_over(const std::vector<RunCurve>& runs, const std::string& name, LineChart chart,
                      const X& x) {
  chart.y_label = "loss";
  chart.log = true;
  for (size_t i = 0; i < runs.size(); ++i) {
    Series series{.name = runs[i].name, .colour = static_cast<int>(i) + 1};
    for (const metrics::Record& record : losses_of(runs[i].run))
      if (record.loss > 0) series.points.push_back({x(runs[i], record), record.loss});
    chart.series.push_back(std::move(series));
  }
  return {name, chart.title, to_svg(chart)};
}

}  // namespace

RunCurve curve_of(const std::string& name, const std::filesystem::path& folder) {
  RunCurve curve{name, read_run(folder)};
  if (curve.run.records.empty() && curve.run.server_losses.empty())
    throw ConfigError("{}: no records of a training. Is it the folder of a run (out.dir)?", folder.string());
  if (curve.run.summary && curve.run.summary->communication)
    curve.bytes_per_step = busiest(*curve.run.summary->communication);
  return curve;
}

double common_target(const std::vector<RunCurve>& runs) {
  double target = 0;
  for (const RunCurve& curve : runs) {
    double best = INFINITY;
    for (const metrics::Record& record : losses_of(curve.run))
      if (std::isfinite(record.loss)) best = std::min(best, record.loss);
    target = std::max(target, best);
  }
  return target * kReachedByEach;
}

void find_target(std::vector<RunCurve>& runs, double target) {
  for (RunCurve& curve : runs) {
    curve.seconds_to_target.reset();
    curve.steps_to_target.reset();
    for (const metrics::Record& record : losses_of(curve.run)) {
      if (!(record.loss <= target)) continue;
      curve.seconds_to_target = record.time;
      curve.steps_to_target = record.step;
      break;
    }
  }
}

LabPage runs_page(const std::vector<RunCurve>& runs, double target) {
  LabPage page;
  page.title = fmt::format("{} runs together", runs.size());
  LabTable table{{"run", "time to target", "steps to target", "final loss", "samples/s"}, {}};
  for (const RunCurve& curve : runs) {
    const std::vector<metrics::Record>& records = curve.run.records;  // as in summary.json
    table.rows.push_back({curve.name,
                          curve.seconds_to_target ? format_duration(*curve.seconds_to_target) : "never",
                          curve.steps_to_target ? fmt::format("{}", *curve.steps_to_target) : "–",
                          records.empty() ? "–" : fmt::format("{:.4g}", records.back().loss),
                          curve.run.summary ? format_short(curve.run.summary->samples_per_s) : "–"});
  }
  table.notes = {fmt::format("Target: a mean training loss of {:.4g}.", target)};
  page.add(table);
  page.section("Loss");
  page.add(
      losses_over(runs, "loss_steps", {.title = "Against steps", .x_label = "steps"},
                  [](const RunCurve&, const metrics::Record& r) { return static_cast<double>(r.step); }));
  page.add(
      losses_over(runs, "loss_time",
                  {.title = "Against time", .x_label = "time", .whole_x = false, .x_unit = Unit::kSeconds},
                  [](const RunCurve&, const metrics::Record& r) { return r.time; }));
  const bool samples =
      std::ranges::all_of(runs, [](const RunCurve& curve) { return curve.run.server_losses.empty(); });
  if (samples)
    page.add(losses_over(
        runs, "loss_samples", {.title = "Against samples", .x_label = "samples"},
        [](const RunCurve&, const metrics::Record& r) { return static_cast<double>(r.samples); }));
  if (std::ranges::all_of(runs, [](const RunCurve& curve) { return curve.bytes_per_step > 0; }))
    page.add(losses_over(runs, "loss_bytes",
                         {.title = "Against bytes sent by the busiest rank",
                          .x_label = "bytes",
                          .whole_x = false,
                          .x_unit = Unit::kBytes},
                         [](const RunCurve& curve, const metrics::Record& r) {
                           return curve.bytes_per_step * static_cast<double>(r.step);
                         }));
  else
    page.paragraph("Loss against bytes needs runs of several ranks that count what they send.");
  return page;
}

}  // namespace yoke::report
