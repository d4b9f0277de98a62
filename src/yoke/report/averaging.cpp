#include "yoke/report/averaging.h"

#include <fmt/core.h>

#include <algorithm>

#include "yoke/base/units.h"
#include "yoke/report/svg_chart.h"

namespace yoke::report {
namespace {

struct ByteUnit {
  double size;
  const char* name;
};

ByteUnit unit_of(const std::vector<AveragedRun>& runs) {
  double most = 0;
  for (const AveragedRun& run : runs)
    if (!run.steps.empty()) most = std::max(most, run.steps.back().bytes);
  return most >= 1e9 ? ByteUnit{1e9, "GB"} : most >= 1e6 ? ByteUnit{1e6, "MB"} : ByteUnit{1e3, "kB"};
}

template <class X>
LabFigure losses_against(const std::string& name, const std::string& heading, const std::string& x_label,
                         const std::vector<AveragedRun>& runs, const std::vector<AveragedRun::Step>& ideal,
                         X x) {
  LineChart chart{.title = heading, .x_label = x_label, .y_label = "loss", .log = true, .whole_x = false};
  int colour = 0;
  for (const AveragedRun& run : runs) {
    Series series{.name = run.name, .colour = ++colour};
    for (const AveragedRun::Step& step : run.steps) series.points.push_back({x(step), step.loss});
    chart.series.push_back(std::move(series));
  }
  if (ideal.empty()) return {name, heading, to_svg(chart)};
  Series dashed{.name = "ddp, nothing sent", .colour = 6, .theory = true};
  for (const AveragedRun::Step& step : ideal) dashed.points.push_back({x(step), step.loss});
  chart.series.push_back(std::move(dashed));
  return {name, heading, to_svg(chart),
          "Dashed: the losses of ddp, as if a step took its computation alone."};
}

}  // namespace

void AveragedRun::average_records(size_t count) {
  const std::vector<Step> recorded = steps;
  for (size_t i = 0; i < steps.size(); ++i) {
    const size_t from = i + 1 < count ? 0 : i + 1 - count;
    steps[i].loss = 0;
    for (size_t j = from; j <= i; ++j) steps[i].loss += recorded[j].loss / static_cast<double>(i + 1 - from);
  }
}

void add_averaging(LabPage& page, double target, const std::vector<AveragedRun>& runs,
                   const std::vector<AveragedRun::Step>& ideal) {
  const ByteUnit bytes = unit_of(runs);
  LabTable table{{"method", "time to target", "sent to target", "time", "sent by a rank", "final loss",
                  "test loss of the average"},
                 {}};
  for (const AveragedRun& run : runs) {
    const AveragedRun::Step last = run.steps.empty() ? AveragedRun::Step{} : run.steps.back();
    table.rows.push_back({run.name, run.seconds_to_target ? format_duration(*run.seconds_to_target) : "never",
                          run.bytes_to_target ? format_bytes(*run.bytes_to_target) : "never",
                          format_duration(last.seconds), format_bytes(last.bytes),
                          fmt::format("{:.4g}", run.final_loss),
                          run.test_loss ? fmt::format("{:.4g}", *run.test_loss) : "–"});
  }
  table.notes = {fmt::format("Target: a loss of {:.4g}.", target),
                 "Every method trains for the same number of steps with the same learning rate. Losses are "
                 "measured, each the mean of the last records; the time is that of a modelled link."};
  page.add(table);
  page.section("Loss against time and bytes");
  page.add(losses_against("loss_time", "Loss against time", "seconds on the link", runs, ideal,
                          [](const AveragedRun::Step& step) { return step.seconds; }));
  page.add(losses_against("loss_bytes", "Loss against bytes", std::string(bytes.name) + " sent by a rank",
                          runs, {}, [&](const AveragedRun::Step& step) { return step.bytes / bytes.size; }));
}

}  // namespace yoke::report
