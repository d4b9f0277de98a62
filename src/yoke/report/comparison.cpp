#include "yoke/report/comparison.h"

#include <fmt/core.h>

#include <algorithm>

#include "yoke/report/svg_chart.h"

namespace yoke::report {
namespace {

template <class X>
LabFigure losses(const std::string& name, const std::string& heading, const std::string& x_label, bool steps,
                 const std::vector<ComparedRun>& runs, double least_loss, X x) {
  LineChart chart{.title = heading, .x_label = x_label, .y_label = "loss", .log = true, .whole_x = steps};
  int colour = 0;
  double end = 0;
  for (const ComparedRun& run : runs) {
    if (!run.records.empty()) end = std::max(end, x(run.records.back()));
    Series series{.name = run.name, .colour = ++colour};
    for (const metrics::Record& record : run.records)
      if (record.loss > 0) series.points.push_back({x(record), record.loss});
    chart.series.push_back(std::move(series));
  }
  if (least_loss > 0)
    chart.series.push_back({.name = "entropy of the labels",
                            .points = {{0, least_loss}, {end, least_loss}},
                            .colour = ++colour,
                            .theory = true});
  return {name, heading, to_svg(chart)};
}

LabFigure staleness(const ComparedRun& run) {
  std::vector<double> counts(run.staleness.begin(), run.staleness.end());
  StackedBars chart = histogram("Staleness", "updates late", "gradients", counts);
  return {"staleness_" + run.name,
          fmt::format("{}: staleness {:.3g} on average", run.name, run.staleness_mean), to_svg(chart)};
}

std::string optional_text(const std::optional<double>& value, const char* unit, double factor = 1) {
  return value ? fmt::format("{:.3g}{}", *value * factor, unit) : "–";
}

LabTable table(const std::vector<ComparedRun>& runs) {
  LabTable table{{"rule", "K", "to target", "floor", "updates/s", "staleness", "idle", "rate kept"}, {}};
  for (const ComparedRun& run : runs)
    table.rows.push_back({run.name, fmt::format("{}", run.k), optional_text(run.seconds_to_target, " s"),
                          fmt::format("{:.4g}", run.loss_floor), fmt::format("{:.4g}", run.updates_per_s),
                          fmt::format("{:.3g}", run.staleness_mean),
                          fmt::format("{:.1f}%", 100 * run.idle_fraction),
                          optional_text(run.rate_kept, "%", 100)});
  table.notes = {
      "Fixed in this comparison: every rule gets the same number of minibatches and the same learning rate. "
      "Rates tuned for each rule may change the order.",
      "K: gradients in an update. Staleness of a gradient: updates between the moment its worker fetched the "
      "parameters and the update that uses it. Idle: share of the workers' time spent waiting for the rule. "
      "Rate kept: updates per second, relative to the same rule without delays (--fault-free).",
      "Floor: mean loss of the last quarter of the run. Time to target counts from the start of training to "
      "the first mean loss at or below the target. A run "
      "of less than a few seconds is mostly noise."};
  return table;
}

std::string winner(double target, const std::vector<ComparedRun>& runs) {
  const ComparedRun* best = nullptr;
  for (const ComparedRun& run : runs) {
    bool sooner =
        run.seconds_to_target && (best == nullptr || *run.seconds_to_target < *best->seconds_to_target);
    if (sooner) best = &run;
  }
  if (best == nullptr) return fmt::format("No rule reached a loss of {:.4g}.", target);
  return fmt::format("{} reached a loss of {:.4g} first, after {:.3g} s.", best->name, target,
                     *best->seconds_to_target);
}

}  // namespace

std::optional<double> seconds_to(const std::vector<metrics::Record>& records, double target) {
  for (const metrics::Record& record : records) {
    if (record.loss <= target) return record.time;
  }
  return std::nullopt;
}

void add_comparison(LabPage& page, double target, const std::vector<ComparedRun>& runs, double least_loss) {
  page.result = winner(target, runs);
  page.section("Error and runtime");
  page.add(table(runs));
  page.add(losses("loss_time", "Loss over time", "seconds", /*steps=*/false, runs, least_loss,
                  [](const metrics::Record& record) { return record.time; }));
  page.add(losses("loss_updates", "Loss over updates", "updates", /*steps=*/true, runs, least_loss,
                  [](const metrics::Record& record) { return static_cast<double>(record.step); }));
  page.section("Staleness");
  for (const ComparedRun& run : runs)
    if (!run.staleness.empty()) page.add(staleness(run));
}

}  // namespace yoke::report
