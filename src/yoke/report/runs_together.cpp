#include "yoke/report/runs_together.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
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

// Where a record lies on the x axis; empty: the run does not tell.
using X = std::function<std::optional<double>(const RunCurve&, const metrics::Record&)>;

struct Figure {
  std::string name;
  LineChart chart{};
  std::string lacks{};  // what a run without a point lacks; it is named instead of drawn
  X x{};
  bool own_records = false;  // those of servers count updates, not samples
};

// A run keeps its colour in all figures.
void add_losses(LabPage& page, const std::vector<RunCurve>& runs, const Figure& figure) {
  LineChart chart = figure.chart;
  chart.y_label = "loss";
  chart.log = true;
  std::vector<std::string> absent;
  for (size_t i = 0; i < runs.size(); ++i) {
    Series series{.name = runs[i].name, .colour = static_cast<int>(i) + 1};
    for (const metrics::Record& record : figure.own_records ? runs[i].run.records : losses_of(runs[i].run))
      if (const auto at = figure.x(runs[i], record); at && record.loss > 0)
        series.points.push_back({*at, record.loss});
    if (series.points.empty())
      absent.push_back(runs[i].name);
    else
      chart.series.push_back(std::move(series));
  }
  std::string left_out = absent.empty() ? "" : fmt::format("Not drawn: {}. {}", join(absent), figure.lacks);
  if (chart.series.empty()) return page.paragraph(fmt::format("{}: {}", chart.title, left_out));
  page.add({figure.name, chart.title, to_svg(chart), left_out});
}

// By the own records of the run: those of servers count updates, not samples.
std::optional<int64_t> samples_until(const RunFolder& run, int64_t step) {
  for (const metrics::Record& record : run.records)
    if (record.step >= step) return record.samples;
  return std::nullopt;
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
    curve.samples_to_target.reset();
    curve.bytes_to_target.reset();
    for (const metrics::Record& record : losses_of(curve.run)) {
      if (!(record.loss <= target)) continue;
      curve.seconds_to_target = record.time;
      curve.steps_to_target = record.step;
      curve.samples_to_target = samples_until(curve.run, record.step);
      if (curve.bytes_per_step > 0)
        curve.bytes_to_target = curve.bytes_per_step * static_cast<double>(record.step);
      break;
    }
  }
}

LabPage runs_page(const std::vector<RunCurve>& runs, double target) {
  LabPage page;
  page.title = fmt::format("{} runs together", runs.size());
  LabTable table{{"run", "time to target", "steps", "samples", "bytes", "final loss", "samples/s"}, {}};
  for (const RunCurve& curve : runs) {
    const std::vector<metrics::Record>& records = curve.run.records;  // as in summary.json
    table.rows.push_back({curve.name,
                          curve.seconds_to_target ? format_duration(*curve.seconds_to_target) : "never",
                          curve.steps_to_target ? fmt::format("{}", *curve.steps_to_target) : "–",
                          curve.samples_to_target ? fmt::format("{}", *curve.samples_to_target) : "–",
                          curve.bytes_to_target ? format_bytes(*curve.bytes_to_target) : "–",
                          records.empty() ? "–" : fmt::format("{:.4g}", records.back().loss),
                          curve.run.summary ? format_short(curve.run.summary->samples_per_s) : "–"});
  }
  table.notes = {
      fmt::format("Target: a mean training loss of {:.4g}. Steps, samples and bytes until then; "
                  "bytes are those that the busiest rank sent.",
                  target)};
  page.add(table);
  page.section("Loss");
  add_losses(page, runs,
             {.name = "loss_steps",
              .chart = {.title = "Against steps", .x_label = "steps"},
              .x = [](const RunCurve&, const metrics::Record& r) { return static_cast<double>(r.step); }});
  add_losses(
      page, runs,
      {.name = "loss_time",
       .chart = {.title = "Against time", .x_label = "time", .whole_x = false, .x_unit = Unit::kSeconds},
       .x = [](const RunCurve&, const metrics::Record& r) { return r.time; }});
  add_losses(page, runs,
             {.name = "loss_samples",
              .chart = {.title = "Against samples", .x_label = "samples"},
              .lacks = "Only records of a worker (metrics.jsonl) count samples.",
              .x = [](const RunCurve&, const metrics::Record& r) { return static_cast<double>(r.samples); },
              .own_records = true});
  add_losses(page, runs,
             {.name = "loss_bytes",
              .chart = {.title = "Against bytes sent by the busiest rank",
                        .x_label = "bytes",
                        .whole_x = false,
                        .x_unit = Unit::kBytes},
              .lacks = "Only runs of several ranks that count what they send have bytes.",
              .x = [](const RunCurve& curve, const metrics::Record& r) -> std::optional<double> {
                if (curve.bytes_per_step <= 0) return std::nullopt;
                return curve.bytes_per_step * static_cast<double>(r.step);
              }});
  return page;
}

}  // namespace yoke::report
