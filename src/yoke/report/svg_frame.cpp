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

constexpr double kLetterWidth = 7;     // about the width of one in a label, on narrow screens too
constexpr double kSlant = 40;          // degrees, of names that do not fit side by side
constexpr double kSlantHeight = 0.65;  // of their width

double label_width(const std::string& text) {
  // Bytes that continue a character of UTF-8 take no room.
  return kLetterWidth *
         static_cast<double>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

// More height for slanted names below the axis; 0: they fit side by side.
double room_for_names(const Frame& f) {
  double widest = 0;
  for (const std::string& name : f.x.names) widest = std::max(widest, label_width(name));
  const double all = widest * static_cast<double>(f.x.names.size());
  return all > Frame::kWidth - Frame::kLeft - Frame::kRight ? kSlantHeight * widest : 0;
}

std::string slanted(double x, double y, const std::string& text) {
  return fmt::format(
      R"svg(<text class="tick end" transform="translate({:.1f} {:.1f}) rotate(-{})">{}</text>)svg", x + 4, y,
      kSlant, escape(text));
}

std::string x_axis(const Frame& f, double room) {
  std::string svg;
  double y = Frame::kHeight - Frame::kBottom;
  for (size_t i = 0; i < f.x.ticks.size(); ++i) {
    const double tick = f.x.ticks[i];
    if (tick < f.x.low || tick > f.x.high) continue;
    double x = f.x_at(tick);
    svg += fmt::format(R"(<line class="axis" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)", x, y, x,
                       y + 4);
    const std::string text =
        i < f.x.names.size() ? f.x.names[i] : tick_text(tick, f.x.log ? tick : f.x.high, f.x_unit);
    svg += room > 0 ? slanted(x, y + 14, text) : text_at(x, y + 18, "tick mid", text);
  }
  svg += fmt::format(R"(<line class="axis" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)", Frame::kLeft,
                     y, Frame::kWidth - Frame::kRight, y);
  svg += text_at(Frame::kWidth - Frame::kRight, Frame::kHeight - 4 + room, "label end", f.x_label);
  return svg;
}

constexpr double kLegendRow = 18;
constexpr double kLegendKey = 30;  // of a legend's entry: its sign and the gaps
constexpr double kLegendGap = 12;  // between the label of the y axis and the legend

using LegendRow = std::vector<LegendEntry>;

// Beside the label of the y axis if there is room, otherwise in rows of its own below it.
std::vector<LegendRow> legend_rows(const Frame& f) {
  std::vector<LegendRow> rows;
  if (f.legend.size() < 2) return rows;
  double used = Frame::kWidth;
  for (const LegendEntry& entry : f.legend) {
    const double width = kLegendKey + label_width(entry.name);
    if (rows.empty() || used + width > Frame::kWidth - Frame::kRight) {
      rows.emplace_back();
      used = 0;
    }
    used += width;
    rows.back().push_back(entry);
  }
  return rows;
}

bool fits_beside_label(const Frame& f, const std::vector<LegendRow>& rows) {
  double width = label_width(f.y_label) + kLegendGap + Frame::kRight;
  for (const LegendRow& row : rows)
    for (const LegendEntry& entry : row) width += kLegendKey + label_width(entry.name);
  return width <= Frame::kWidth;
}

// One line of text, so that the browser does the spacing whatever the font.
std::string legend(const LegendRow& row, double y) {
  std::string line;
  for (const LegendEntry& entry : row) {
    line += fmt::format(R"(<tspan class="key {}" dx="{}">{}</tspan><tspan dx="5">{}</tspan>)",
                        series_class(entry.colour), line.empty() ? 0 : 14,
                        entry.theory              ? "╌"
                        : entry.colour > kColours ? "○"
                                                  : "●",
                        escape(entry.name));
  }
  return fmt::format(R"(<text class="label end" x="{}" y="{}">{}</text>)", Frame::kWidth - Frame::kRight, y,
                     line);
}

}  // namespace

std::string series_class(int series) {
  return fmt::format("c{}{}", (series - 1) % kColours + 1, (series - 1) / kColours % 2 == 1 ? " dotted" : "");
}

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
  const std::vector<LegendRow> rows = legend_rows(f);
  const bool beside = fits_beside_label(f, rows);
  const double lower = beside ? 0 : kLegendRow * static_cast<double>(rows.size());
  const double room = room_for_names(f);
  std::string svg = fmt::format(R"(<svg class="chart" role="img" viewBox="0 0 {} {}"><title>{}</title>)",
                                Frame::kWidth, Frame::kHeight + lower + room, escape(f.title));
  svg += text_at(0, 16, "label", f.y_label);
  for (size_t i = 0; i < rows.size(); ++i)
    svg += legend(rows[i], 16 + kLegendRow * static_cast<double>(beside ? i : i + 1));
  const std::string drawn = y_axis(f) + x_axis(f, room) + content;
  if (lower == 0) return svg + drawn + "</svg>\n";
  return svg + fmt::format("<g transform=\"translate(0 {})\">{}</g></svg>\n", lower, drawn);
}

}  // namespace yoke::report
