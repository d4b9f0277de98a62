#include "yoke/report/sparse_lab.h"

#include <fmt/core.h>

#include <algorithm>

#include "yoke/base/units.h"
#include "yoke/report/svg_chart.h"

namespace yoke::report {
namespace {

constexpr double kBarGap = 0.6;  // between the bars of two runs, in bars

LabFigure objectives(const std::vector<SparseRun>& runs) {
  double best = runs.front().final_objective;
  for (const SparseRun& run : runs)
    for (const Point& point : run.objective) best = std::min(best, point.y);
  LineChart chart{.title = "Objective against time",
                  .x_label = "seconds",
                  .y_label = "objective above the best, relative",
                  .log = true,
                  .whole_x = false};
  int colour = 0;
  for (const SparseRun& run : runs) {
    Series series{.name = fmt::format("delay {}", run.max_delay), .colour = ++colour};
    // The best run ends at 0, which a logarithmic axis cannot show.
    for (const Point& point : run.objective)
      if (point.y > best) series.points.push_back({point.x, (point.y - best) / best});
    chart.series.push_back(std::move(series));
  }
  return {"sparse_objective", "Objective against time", to_svg(chart),
          "A point for each pass over all blocks. The lowest objective of all runs counts as the best."};
}

LabFigure times(const std::vector<SparseRun>& runs) {
  StackedBars chart{.title = "Time of each worker",
                    .x_label = "max delay, a bar for each worker",
                    .y_label = "seconds",
                    .layers = {"computing", "waiting"}};
  double at = 0;
  for (const SparseRun& run : runs) {
    for (size_t worker = 0; worker < run.workers.size(); ++worker, ++at) {
      StackedBar bar{at, at + 1, {run.workers[worker].compute, run.workers[worker].wait}, {}};
      if (worker == run.workers.size() / 2) bar.name = fmt::format("{}", run.max_delay);
      chart.bars.push_back(std::move(bar));
    }
    at += kBarGap;
  }
  return {"sparse_time", "Time of each worker", to_svg(chart),
          "Computing includes the delays that were added. Waiting: for servers and other workers."};
}

LabFigure traffic(const std::vector<FilteredRun>& filtered) {
  double most = 0;
  for (const FilteredRun& run : filtered) most = std::max(most, run.sent + run.received);
  const double unit = most >= 1e9 ? 1e9 : most >= 1e6 ? 1e6 : 1e3;
  StackedBars chart{.title = "Traffic by filter",
                    .x_label = "filters, each with those before it",
                    .y_label = unit >= 1e9   ? "GB, all workers"
                               : unit >= 1e6 ? "MB, all workers"
                                             : "kB, all workers",
                    .layers = {"pushed", "pulled"}};
  double at = 0;
  for (const FilteredRun& run : filtered) {
    chart.bars.push_back({at, at + 1, {run.sent / unit, run.received / unit}, run.filters});
    at += 1 + kBarGap;
  }
  return {"sparse_traffic", "Traffic by filter", to_svg(chart),
          "Keys and values of all pushes and pulls, without heads; the first delay of the list."};
}

LabTable delays_table(double target, const std::vector<SparseRun>& runs) {
  LabTable table{{"max delay", "time to target", "passes to target", "time", "waiting", "objective",
                  "weights that are not 0"},
                 {}};
  for (const SparseRun& run : runs)
    table.rows.push_back({fmt::format("{}", run.max_delay),
                          run.seconds_to_target ? format_duration(*run.seconds_to_target) : "never",
                          run.passes_to_target ? fmt::format("{}", *run.passes_to_target) : "–",
                          run.objective.empty() ? "" : format_duration(run.objective.back().x),
                          fmt::format("{:.1f} %", 100 * run.idle_fraction()),
                          fmt::format("{:.8g}", run.final_objective),
                          format_count(static_cast<double>(run.nonzeros))});
  table.notes = {fmt::format("Target: an objective of {:.8g}.", target)};
  return table;
}

LabTable filters_table(const std::vector<FilteredRun>& filtered) {
  LabTable table{{"filters", "pushed", "pulled", "objective"}, {}};
  for (const FilteredRun& run : filtered)
    table.rows.push_back({run.filters, format_bytes(run.sent), format_bytes(run.received),
                          fmt::format("{:.8g}", run.objective)});
  return table;
}

}  // namespace

double SparseRun::idle_fraction() const {
  double wait = 0, all = 0;
  for (const Worker& one : workers) {
    wait += one.wait;
    all += one.wait + one.compute;
  }
  return all > 0 ? wait / all : 0;
}

void add_sparse(LabPage& page, double target, const std::vector<SparseRun>& runs,
                const std::vector<FilteredRun>& filtered) {
  page.add(delays_table(target, runs));
  page.section("Delays and filters");
  page.add(objectives(runs));
  page.add(times(runs));
  if (filtered.empty()) return;
  page.add(traffic(filtered));
  page.add(filters_table(filtered));
}

}  // namespace yoke::report
