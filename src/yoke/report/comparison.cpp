#include "yoke/report/comparison.h"

#include <fmt/core.h>

#include <algorithm>

#include "yoke/report/html.h"
#include "yoke/report/svg_chart.h"

namespace yoke::report {
namespace {

std::string figure(const std::string& heading, const std::string& svg) {
  return fmt::format("<figure class=\"card\"><h3>{}</h3>{}</figure>\n", escape(heading), svg);
}

template <class X>
std::string losses(const std::string& heading, const std::string& x_label, bool steps,
                   const std::vector<ComparedRun>& runs, X x) {
  LineChart chart{.title = heading, .x_label = x_label, .y_label = "loss", .whole_x = steps};
  int colour = 0;
  for (const ComparedRun& run : runs) {
    Series series{.name = run.name, .colour = ++colour};
    for (const metrics::Record& record : run.records) series.points.push_back({x(record), record.loss});
    chart.series.push_back(std::move(series));
  }
  return figure(heading, to_svg(chart));
}

std::string staleness(const ComparedRun& run) {
  std::vector<double> counts(run.staleness.begin(), run.staleness.end());
  StackedBars chart = histogram("Staleness", "updates late", "gradients", counts);
  return figure(fmt::format("{}: staleness {:.3g} on average", run.name, run.staleness_mean), to_svg(chart));
}

std::string optional_text(const std::optional<double>& value, const char* unit, double factor = 1) {
  return value ? fmt::format("{:.3g}{}", *value * factor, unit) : "–";
}

std::string table(const std::vector<ComparedRun>& runs) {
  std::string rows;
  for (const ComparedRun& run : runs)
    rows += fmt::format(
        R"(<tr><th scope="row">{}</th><td class="num">{}</td><td class="num">{}</td><td class="num">{:.4g}</td>)"
        R"(<td class="num">{:.4g}</td><td class="num">{:.3g}</td><td class="num">{:.1f}%</td><td class="num">{}</td></tr>)",
        escape(run.name), run.k, optional_text(run.seconds_to_target, " s"), run.final_loss,
        run.updates_per_s, run.staleness_mean, 100 * run.idle_fraction,
        optional_text(run.rate_kept, "%", 100));
  return "<section class=\"card\"><table><tr><th>rule</th><th>K</th><th>to target</th><th>final loss</th>"
         "<th>updates/s</th><th>staleness</th><th>idle</th><th>rate kept</th></tr>" +
         rows + "</table></section>\n";
}

std::string winner(double target, const std::vector<ComparedRun>& runs) {
  const ComparedRun* best = nullptr;
  for (const ComparedRun& run : runs) {
    bool sooner =
        run.seconds_to_target && (best == nullptr || *run.seconds_to_target < *best->seconds_to_target);
    if (sooner) best = &run;
  }
  if (best == nullptr) return fmt::format("<p>No rule reached a loss of {:.4g}.</p>\n", target);
  return fmt::format("<p><b>{}</b> reached a loss of {:.4g} first, after {:.3g} s.</p>\n", escape(best->name),
                     target, *best->seconds_to_target);
}

}  // namespace

std::optional<double> seconds_to(const std::vector<metrics::Record>& records, double target) {
  for (const metrics::Record& record : records) {
    if (record.loss <= target) return record.time;
  }
  return std::nullopt;
}

std::string comparison_html(const std::string& title, const std::string& about, double target,
                            const std::vector<ComparedRun>& runs) {
  std::string histograms;
  for (const ComparedRun& run : runs) histograms += run.staleness.empty() ? "" : staleness(run);
  return html_page(
      title, html_heading(title, about) + winner(target, runs) + table(runs) +
                 "<h2>Error and runtime</h2>\n<div class=\"grid2\">" +
                 losses("Loss over time", "seconds", /*steps=*/false, runs,
                        [](const metrics::Record& record) { return record.time; }) +
                 losses("Loss over updates", "updates", /*steps=*/true, runs,
                        [](const metrics::Record& record) { return static_cast<double>(record.step); }) +
                 "</div>\n<h2>Staleness</h2>\n<div class=\"grid2\">" + histograms + "</div>\n");
}

}  // namespace yoke::report
