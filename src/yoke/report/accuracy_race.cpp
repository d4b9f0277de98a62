#include "yoke/report/accuracy_race.h"

#include <fmt/core.h>

#include <algorithm>

#include "yoke/base/units.h"
#include "yoke/report/svg_chart.h"

namespace yoke::report {
namespace {

LabFigure over_time(const std::vector<RacedRun>& runs, const IdealRace& ideal) {
  LineChart chart{.title = "Accuracy over time",
                  .x_label = "seconds",
                  .y_label = "accuracy",
                  .unit = Unit::kPercent,
                  .log_x = true,
                  .whole_x = false};
  int colour = 0;
  for (const RacedRun& run : runs) chart.series.push_back({run.name, run.points, ++colour});
  if (ideal.points.empty()) return {"accuracy_time", "Accuracy over time", to_svg(chart)};
  chart.series.push_back({.name = ideal.name, .points = ideal.points, .colour = 6, .theory = true});
  return {"accuracy_time", "Accuracy over time", to_svg(chart), "Dashed: " + ideal.name + "."};
}

LabFigure over_epochs(const std::vector<RacedRun>& runs) {
  LineChart chart{.title = "Accuracy over epochs",
                  .x_label = "epochs",
                  .y_label = "accuracy",
                  .unit = Unit::kPercent,
                  .whole_x = false};
  int colour = 0;
  for (const RacedRun& run : runs) chart.series.push_back({run.name, run.by_epoch, ++colour});
  return {"accuracy_epochs", "Accuracy over epochs", to_svg(chart),
          "The same samples: what a method loses here it must win back by speed."};
}

std::string first_of(double target, const std::vector<RacedRun>& runs) {
  const RacedRun* best = nullptr;
  for (const RacedRun& run : runs)
    if (run.seconds_to_target && (best == nullptr || *run.seconds_to_target < *best->seconds_to_target))
      best = &run;
  if (best == nullptr) return fmt::format("No method reached an accuracy of {:.2f}%.", 100 * target);
  return fmt::format("{} reached an accuracy of {:.2f}% first, after {}.", best->name, 100 * target,
                     format_duration(*best->seconds_to_target));
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

void add_accuracy_race(LabPage& page, double target, const std::vector<RacedRun>& runs,
                       const IdealRace& ideal) {
  page.result = first_of(target, runs);
  LabTable table{{"method", "time to target", "best accuracy", "final loss", "time"}, {}};
  for (const RacedRun& run : runs)
    table.rows.push_back({run.name, run.seconds_to_target ? format_duration(*run.seconds_to_target) : "never",
                          fmt::format("{:.2f}%", 100 * run.best()), fmt::format("{:.4g}", run.final_loss),
                          run.points.empty() ? "–" : format_duration(run.points.back().x)});
  page.add(table);
  page.add(over_time(runs, ideal));
  page.add(over_epochs(runs));
}

}  // namespace yoke::report
