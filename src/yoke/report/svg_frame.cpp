#include "yoke/report/svg_frame.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "yoke/report/html.h"

namespace yoke::report {
namespace {

std::string text_at(double x, double y, const char* classes, const std::string& text) {
  return fmt::format(R"(<text class="{}" x="{:.1f}" y="{:.1f}">{}</text>)", classes, x, y, escape(text));
}

std::string y_axis(const Frame& f) {
  std::string svg;
  for (double tick : f.y.ticks) {
    double y = f.y_at(tick);
    svg += fmt::format(R"(<line class="grid" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)",
                       Frame::kLeft, y, Frame::kWidth - Frame::kRight, y);
    // On a logarithmic axis each label has its own scale: 1e-3 and 1k share it badly.
    double scale = f.y.log ? tick : std::max(std::abs(f.y.ticks.front()), std::abs(f.y.ticks.back()));
    svg += text_at(Frame::kLeft - 8, y + 4, "tick end", tick_text(tick, scale, f.unit));
  }
  return svg;
}

std::string x_axis(const Frame& f) {
  std::string svg;
  double y = Frame::kHeight - Frame::kBottom;
  for (double tick : f.x.ticks) {
    if (tick < f.x.low || tick > f.x.high) continue;
    double x = f.x_at(tick);
    svg += fmt::format(R"(<line class="axis" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)", x, y, x,
                       y + 4);
    svg += text_at(x, y + 18, "tick mid", tick_text(tick, f.x.high, Unit::kNumber));
  }
  svg += fmt::format(R"(<line class="axis" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)", Frame::kLeft,
                     y, Frame::kWidth - Frame::kRight, y);
  svg += text_at(Frame::kWidth - Frame::kRight, Frame::kHeight - 4, "label end", f.x_label);
  return svg;
}

// One line of text, so that the browser does the spacing whatever the font.
std::string legend(const std::vector<LegendEntry>& entries) {
  if (entries.size() < 2) return "";
  std::string line;
  for (const LegendEntry& entry : entries) {
    line += fmt::format(R"(<tspan class="key c{}" dx="{}">●</tspan><tspan dx="5">{}</tspan>)", entry.colour,
                        line.empty() ? 0 : 14, escape(entry.name));
  }
  return fmt::format(R"(<text class="label end" x="{}" y="16">{}</text>)", Frame::kWidth - Frame::kRight,
                     line);
}

}  // namespace

double Axis::share(double value) const {
  if (log) return std::log(value / low) / std::log(high / low);
  return (value - low) / (high - low);
}

Axis make_axis(double low, double high, bool log) {
  Axis axis;
  axis.log = log && low > 0 && std::isfinite(high) && high >= low;
  axis.ticks = axis.log ? log_ticks(low, high) : nice_ticks(low, high);
  axis.low = axis.ticks.front();
  axis.high = axis.ticks.back();
  return axis;
}

std::string to_svg(const Frame& f, const std::string& content) {
  std::string svg = fmt::format(R"(<svg class="chart" role="img" viewBox="0 0 {} {}"><title>{}</title>)",
                                Frame::kWidth, Frame::kHeight, escape(f.title));
  svg += text_at(0, 16, "label", f.y_label);
  svg += y_axis(f) + x_axis(f) + legend(f.legend) + content;
  return svg + "</svg>\n";
}

}  // namespace yoke::report
