#include "yoke/report/accuracy_race.h"

#include <fmt/core.h>

#include <algorithm>

#include "yoke/base/units.h"
#include "yoke/report/html.h"
#include "yoke/report/svg_chart.h"

namespace yoke::report {
namespace {

std::string accuracy_chart(const std::vector<RacedRun>& runs) {
  LineChart chart{
      .title = "Accuracy over time", .x_label = "seconds", .y_label = "accuracy, %", .whole_x = false};
  int colour = 0;
  for (const RacedRun& run : runs) {
    Series series{.name = run.name, .colour = ++colour};
    for (const Point& point : run.points) series.points.push_back({point.x, 100 * point.y});
    chart.series.push_back(std::move(series));
  }
  return fmt::format("<figure class=\"card\"><h3>Accuracy over time</h3>{}</figure>\n", to_svg(chart));
}

std::string race_rows(const std::vector<RacedRun>& runs) {
  std::string rows;
  for (const RacedRun& run : runs)
    rows += fmt::format(
        R"(<tr><th scope="row">{}</th><td class="num">{}</td><td class="num">{:.2f}%</td><td class="num">{:.4g}</td>)"
        R"(<td class="num">{}</td></tr>)",
        escape(run.name), run.seconds_to_target ? format_duration(*run.seconds_to_target) : "never",
        100 * run.best(), run.final_loss, run.points.empty() ? "–" : format_duration(run.points.back().x));
  return rows;
}

std::string first_of(double target, const std::vector<RacedRun>& runs) {
  const RacedRun* best = nullptr;
  for (const RacedRun& run : runs)
    if (run.seconds_to_target && (best == nullptr || *run.seconds_to_target < *best->seconds_to_target))
      best = &run;
  if (best == nullptr) return fmt::format("<p>No method reached an accuracy of {:.2f}%.</p>\n", 100 * target);
  return fmt::format("<p><b>{}</b> reached an accuracy of {:.2f}% first, after {}.</p>\n", escape(best->name),
                     100 * target, format_duration(*best->seconds_to_target));
}

}  // namespace

double RacedRun::best() const {
  double most = 0;
  for (const Point& point : points) most = std::max(most, point.y);
  return most;
}

void find_target(std::vector<RacedRun>& runs, double target) {
  for (RacedRun& run : runs) {
    auto reached = std::find_if(run.points.begin(), run.points.end(),
                                [&](const Point& point) { return point.y >= target; });
    run.seconds_to_target.reset();
    if (reached != run.points.end()) run.seconds_to_target = reached->x;
  }
}

std::string accuracy_race_html(const std::string& title, const std::string& about, double target,
                               const std::vector<RacedRun>& runs) {
  return html_page(
      title,
      html_heading(title, about) + first_of(target, runs) +
          "<section class=\"card\"><table><tr><th>method</th><th>time to target</th><th>best accuracy</th>"
          "<th>final loss</th><th>time</th></tr>" +
          race_rows(runs) + "</table></section>\n" + accuracy_chart(runs));
}

}  // namespace yoke::report
