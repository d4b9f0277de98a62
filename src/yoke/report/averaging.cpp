#include "yoke/report/averaging.h"

#include <fmt/core.h>

#include <algorithm>

#include "yoke/base/units.h"
#include "yoke/report/html.h"
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
std::string losses_against(const std::string& heading, const std::string& x_label,
                           const std::vector<AveragedRun>& runs, X x) {
  LineChart chart{.title = heading, .x_label = x_label, .y_label = "loss", .log = true, .whole_x = false};
  int colour = 0;
  for (const AveragedRun& run : runs) {
    Series series{.name = run.name, .colour = ++colour};
    for (const AveragedRun::Step& step : run.steps) series.points.push_back({x(step), step.loss});
    chart.series.push_back(std::move(series));
  }
  return fmt::format("<figure class=\"card\"><h3>{}</h3>{}</figure>\n", escape(heading), to_svg(chart));
}

std::string rows_of(const std::vector<AveragedRun>& runs) {
  std::string rows;
  for (const AveragedRun& run : runs) {
    const AveragedRun::Step last = run.steps.empty() ? AveragedRun::Step{} : run.steps.back();
    rows += fmt::format(
        R"(<tr><th scope="row">{}</th><td class="num">{}</td><td class="num">{}</td><td class="num">{}</td>)"
        R"(<td class="num">{}</td><td class="num">{:.4g}</td><td class="num">{}</td></tr>)",
        escape(run.name), run.seconds_to_target ? format_duration(*run.seconds_to_target) : "never",
        run.bytes_to_target ? format_bytes(*run.bytes_to_target) : "never", format_duration(last.seconds),
        format_bytes(last.bytes), run.final_loss,
        run.test_loss ? fmt::format("{:.4g}", *run.test_loss) : "–");
  }
  return rows;
}

}  // namespace

std::string averaging_html(const std::string& title, const std::string& about, double target,
                           const std::vector<AveragedRun>& runs) {
  const ByteUnit bytes = unit_of(runs);
  return html_page(
      title,
      html_heading(title, about) + fmt::format("<p>Target: a loss of {:.4g}.</p>\n", target) +
          "<section class=\"card\"><table><tr><th>method</th><th>time to target</th><th>sent to target</th>"
          "<th>time</th><th>sent by a rank</th><th>final loss</th><th>test loss of the average</th></tr>" +
          rows_of(runs) + "</table></section>\n<h2>Loss against time and bytes</h2>\n<div class=\"grid2\">" +
          losses_against("Loss against time", "seconds on the link", runs,
                         [](const AveragedRun::Step& step) { return step.seconds; }) +
          losses_against("Loss against bytes", std::string(bytes.name) + " sent by a rank", runs,
                         [&](const AveragedRun::Step& step) { return step.bytes / bytes.size; }) +
          "</div>\n");
}

}  // namespace yoke::report
