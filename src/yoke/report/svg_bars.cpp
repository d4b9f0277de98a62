#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "yoke/report/html.h"
#include "yoke/report/svg_chart.h"
#include "yoke/report/svg_frame.h"

namespace yoke::report {
namespace {

constexpr int kTheoryColour = 6;
constexpr double kWhiskerCap = 6;
constexpr size_t kLeastHistogramBars = 8, kMostHistogramBars = 64;

double height_of(double value) {
  return std::isfinite(value) && value > 0 ? value : 0;
}

double total_of(const StackedBar& bar) {
  return std::accumulate(bar.values.begin(), bar.values.end(), 0.0,
                         [](double sum, double value) { return sum + height_of(value); });
}

std::string tooltip(const StackedBars& chart, const StackedBar& bar) {
  std::string text = chart.x_label + " ";
  if (!bar.name.empty())
    text += bar.name;
  else if (chart.whole)
    text += value_text((bar.from + bar.to) / 2, Unit::kNumber);
  else
    text += value_text(bar.from, Unit::kNumber) + " to " + value_text(bar.to, Unit::kNumber);
  for (size_t i = chart.layers.size(); i-- > 0;) {
    double value = i < bar.values.size() ? height_of(bar.values[i]) : 0;
    text += fmt::format("\n{}: {}", chart.layers[i], value_text(value, chart.unit));
  }
  if (bar.theory > 0) text += "\nformula: " + value_text(bar.theory, chart.unit);
  if (bar.low < bar.high)
    text += fmt::format("\nfrom {} to {}", value_text(bar.low, chart.unit), value_text(bar.high, chart.unit));
  return text;
}

std::string whisker(const Frame& frame, const StackedBar& bar) {
  if (!(bar.low < bar.high) || !std::isfinite(bar.high)) return "";
  const double middle = frame.x_at((bar.from + bar.to) / 2);
  const double cap = std::min(kWhiskerCap, (frame.x_at(bar.to) - frame.x_at(bar.from)) / 4);
  return fmt::format(
      R"(<path class="whisker" d="M{0:.1f} {2:.2f}H{1:.1f}M{0:.1f} {3:.2f}H{1:.1f}M{4:.1f} {2:.2f}V{3:.2f}"/>)",
      middle - cap, middle + cap, frame.y_at(height_of(bar.low)), frame.y_at(bar.high), middle);
}

std::string draw(const StackedBars& chart, const Frame& frame, const StackedBar& bar) {
  double left = frame.x_at(bar.from);
  double width = frame.x_at(bar.to) - left;
  double gap = width > 4 ? 1 : 0;
  std::string svg = fmt::format(R"(<g class="stack"><title>{}</title>)", escape(tooltip(chart, bar)));
  double below = 0;
  for (size_t i = 0; i < bar.values.size(); ++i) {
    double above = below + height_of(bar.values[i]);
    double top = frame.y_at(above);
    svg += fmt::format(R"(<rect class="bar c{}" x="{:.1f}" y="{:.2f}" width="{:.1f}" height="{:.2f}"/>)",
                       i + 1, left + gap / 2, top, std::max(width - gap, 0.5), frame.y_at(below) - top);
    below = above;
  }
  if (bar.theory > 0)
    svg += fmt::format(R"(<path class="line theory c{}" d="M{:.1f} {:.2f}H{:.1f}"/>)", kTheoryColour,
                       left - gap, frame.y_at(bar.theory), left + width + gap);
  return svg + whisker(frame, bar) + "</g>";
}

void name_ticks(const StackedBars& chart, Axis& axis) {
  if (std::all_of(chart.bars.begin(), chart.bars.end(), [](auto& bar) { return bar.name.empty(); })) return;
  axis.ticks.clear();
  for (const StackedBar& bar : chart.bars) {
    if (bar.name.empty()) continue;
    axis.ticks.push_back((bar.from + bar.to) / 2);
    axis.names.push_back(bar.name);
  }
}

}  // namespace

StackedBars histogram(const std::string& title, const std::string& x_label, const std::string& y_label,
                      const std::vector<double>& counts) {
  StackedBars chart{.title = title, .x_label = x_label, .y_label = y_label, .legend = false, .whole = true};
  chart.layers = {y_label};
  size_t bars = std::clamp(counts.size(), kLeastHistogramBars, kMostHistogramBars);
  for (size_t i = 0; i < bars; ++i) {
    auto middle = static_cast<double>(i);
    chart.bars.push_back({middle - 0.5, middle + 0.5, {i < counts.size() ? counts[i] : 0}});
  }
  return chart;
}

std::string to_svg(const StackedBars& chart) {
  Frame frame{chart.title, chart.x_label, chart.y_label, chart.unit, Unit::kNumber, {}, {}, {}};
  double highest = 0;
  for (const StackedBar& bar : chart.bars)
    highest = std::max({highest, total_of(bar), height_of(bar.theory), height_of(bar.high)});
  if (chart.y_to > 0) highest = chart.y_to;
  frame.y = make_axis(0, highest > 0 ? highest : 1, false);
  frame.x = make_axis(0, 1, false);
  if (!chart.bars.empty() && chart.bars.front().from < chart.bars.back().to) {
    frame.x = make_axis(chart.bars.front().from, chart.bars.back().to, false);
    frame.x.low = chart.bars.front().from;
    frame.x.high = chart.bars.back().to;
    name_ticks(chart, frame.x);
    if (chart.whole) std::erase_if(frame.x.ticks, [](double tick) { return tick != std::round(tick); });
  }
  for (size_t i = 0; chart.legend && i < chart.layers.size(); ++i) {
    frame.legend.push_back({chart.layers[i], static_cast<int>(i) + 1});
  }
  const bool predicted =
      std::any_of(chart.bars.begin(), chart.bars.end(), [](const auto& bar) { return bar.theory > 0; });
  if (predicted) frame.legend.push_back({"formula", kTheoryColour, /*theory=*/true});
  std::string content;
  for (const StackedBar& bar : chart.bars) content += draw(chart, frame, bar);
  return to_svg(frame, content);
}

}  // namespace yoke::report
