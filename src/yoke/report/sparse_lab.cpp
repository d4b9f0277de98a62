#include "yoke/report/sparse_lab.h"

#include <fmt/core.h>

#include <algorithm>

#include "yoke/base/units.h"
#include "yoke/report/html.h"
#include "yoke/report/svg_chart.h"

namespace yoke::report {
namespace {

constexpr double kBarGap = 0.6;  // between the bars of two runs, in bars

std::string figure(const std::string& heading, const std::string& svg, const std::string& below) {
  return fmt::format(
      "<figure class=\"card\"><h3>{}</h3>{}<figcaption class=\"about\">{}</figcaption></figure>\n",
      escape(heading), svg, escape(below));
}

std::string objectives(const std::vector<SparseRun>& runs) {
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
  return figure(
      "Objective against time", to_svg(chart),
      "A point for each pass over all blocks. The lowest objective of all runs counts as the best.");
}

std::string times(const std::vector<SparseRun>& runs) {
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
  return figure("Time of each worker", to_svg(chart),
                "Computing includes the delays that were added. Waiting: for servers and other workers.");
}

std::string traffic(const std::vector<FilteredRun>& filtered) {
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
  return figure("Traffic by filter", to_svg(chart),
                "Keys and values of all pushes and pulls, without heads; the first delay of the list.");
}

std::string rows_of(const std::vector<SparseRun>& runs) {
  std::string rows;
  for (const SparseRun& run : runs)
    rows += fmt::format(
        R"(<tr><th scope="row">{}</th><td class="num">{}</td><td class="num">{}</td>)"
        R"(<td class="num">{}</td><td class="num">{:.1f} %</td><td class="num">{:.8g}</td><td class="num">{}</td></tr>)",
        run.max_delay, run.seconds_to_target ? format_duration(*run.seconds_to_target) : "never",
        run.passes_to_target ? fmt::format("{}", *run.passes_to_target) : "–",
        run.objective.empty() ? "" : format_duration(run.objective.back().x), 100 * run.idle_fraction(),
        run.final_objective, format_count(static_cast<double>(run.nonzeros)));
  return rows;
}

std::string rows_of(const std::vector<FilteredRun>& filtered) {
  std::string rows;
  for (const FilteredRun& run : filtered)
    rows += fmt::format(
        R"(<tr><th scope="row">{}</th><td class="num">{}</td><td class="num">{}</td><td class="num">{:.8g}</td></tr>)",
        escape(run.filters), format_bytes(run.sent), format_bytes(run.received), run.objective);
  return rows;
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

std::string sparse_html(const std::string& about, double target, const std::vector<SparseRun>& runs,
                        const std::vector<FilteredRun>& filtered) {
  const char* title = "Sparse logistic regression over parameter servers";
  return html_page(
      title, html_heading(title, about) + fmt::format("<p>Target: an objective of {:.8g}.</p>\n", target) +
                 "<section class=\"card\"><table><tr><th>max delay</th><th>time to target</th><th>passes to "
                 "target</th>"
                 "<th>time</th><th>waiting</th><th>objective</th><th>weights that are not 0</th></tr>" +
                 rows_of(runs) + "</table></section>\n<h2>Delays and filters</h2>\n<div class=\"grid2\">" +
                 objectives(runs) + times(runs) + traffic(filtered) +
                 "</div>\n<section class=\"card\"><table><tr><th>filters</th><th>pushed</th><th>pulled</th>"
                 "<th>objective</th></tr>" +
                 rows_of(filtered) + "</table></section>\n");
}

}  // namespace yoke::report
