#include "yoke/report/svg_chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "yoke/report/html.h"
#include "yoke/report/svg_frame.h"

namespace yoke::report {
namespace {

constexpr size_t kMostPoints = 500;  // more are indistinguishable at this size
constexpr size_t kMostColumns = 60;  // that react to hovering
constexpr size_t kMostTints = 40;
constexpr size_t kFewPoints = 24;                                    // these are drawn as dots too
constexpr double kNameHeight = 13, kNameLetter = 6.5, kNameGap = 8;  // of names beside points

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void take(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

struct Ranges {
  Range x;
  Range y;
};

Ranges ranges_of(const LineChart& chart) {
  Ranges ranges;
  for (const Series& series : chart.series) {
    for (const Point& point : series.points) {
      ranges.x.take(point.x);
      ranges.y.take(point.y);
    }
  }
  return ranges;
}

bool drawable(const Frame& frame, double y) {
  return std::isfinite(y) && (!frame.y.log || y > 0);
}

// The x axis ends with the data, not with a round number: a run that stops at step 938 fills its chart.
Axis x_axis_of(const LineChart& chart, const Range& data) {
  double low = chart.x_from < chart.x_to ? chart.x_from : data.low;
  double high = chart.x_from < chart.x_to ? chart.x_to : data.high;
  if (data.empty()) return make_axis(0, 1, false);
  if (!(low < high)) return {{low}, low - 1, low + 1, false};
  Axis axis = make_axis(low, high, chart.log_x);
  axis.low = low;
  axis.high = high;
  if (chart.whole_x) std::erase_if(axis.ticks, [](double tick) { return tick != std::floor(tick); });
  return axis;
}

bool is_shown(const Series& series) {
  return !series.faint && !series.theory && !series.name.empty() && !series.points.empty();
}

// One point for each series: names stand beside the points, not in a legend.
bool is_scattered(const LineChart& chart) {
  return std::ranges::count_if(chart.series, is_shown) > 1 &&
         std::ranges::all_of(chart.series,
                             [](const Series& one) { return !is_shown(one) || one.points.size() == 1; });
}

Frame frame_of(const LineChart& chart, const Ranges& ranges) {
  Frame frame{chart.title, chart.x_label, chart.y_label, chart.unit, chart.x_unit, {}, {}, {}};
  frame.x = x_axis_of(chart, ranges.x);
  double low = ranges.y.empty() ? 0 : ranges.y.low;
  double high = ranges.y.empty() ? 1 : ranges.y.high;
  frame.y = make_axis(chart.from_zero && !chart.log ? std::min(low, 0.0) : low, high, chart.log);
  if (chart.unit == Unit::kPercent && high <= 1 && frame.y.high > 1) {  // no more than all
    std::erase_if(frame.y.ticks, [](double tick) { return tick > 1 + 1e-9; });
    frame.y.high = 1;
  }
  for (const Series& series : chart.series) {
    if (!series.faint && !series.name.empty() && !(is_shown(series) && is_scattered(chart)))
      frame.legend.push_back({series.name, series.colour, series.theory});
  }
  return frame;
}

std::string path_of(const Frame& frame, const std::vector<Point>& points) {
  std::string path;
  bool down = false;
  for (const Point& point : points) {
    if (!drawable(frame, point.y)) {
      down = false;
      continue;
    }
    // The h0 makes a lone point visible: a round cap of a line without length.
    path += fmt::format("{}{:.1f} {:.1f}{}", down ? "L" : "M", frame.x_at(point.x), frame.y_at(point.y),
                        down ? "" : "h0");
    down = true;
  }
  return path;
}

std::string draw(const Frame& frame, const Series& series) {
  std::string svg =
      fmt::format(R"(<path class="{} {}" d="{}"/>)",
                  series.theory  ? "line theory"
                  : series.faint ? "line faint"
                                 : "line",
                  series_class(series.colour), path_of(frame, thin_out(series.points, kMostPoints)));
  if (series.faint || series.theory || series.points.size() > kFewPoints) return svg;
  for (const Point& point : series.points) {
    if (!drawable(frame, point.y)) continue;
    svg += fmt::format(R"(<circle class="dot {}" cx="{:.1f}" cy="{:.1f}" r="3"/>)",
                       series_class(series.colour), frame.x_at(point.x), frame.y_at(point.y));
  }
  return svg;
}

struct Place {
  double left, right, y;
  bool meets(const Place& other) const {
    return left < other.right && other.left < right && std::abs(y - other.y) < kNameHeight - 1;
  }
};

// Beside its point; where names would overlap, the later one moves down.
std::string names_of_points(const LineChart& chart, const Frame& frame) {
  std::string svg;
  std::vector<Place> taken;
  for (const Series& series : chart.series) {
    if (!is_shown(series) || !drawable(frame, series.points[0].y)) continue;
    const double x = frame.x_at(series.points[0].x), y = frame.y_at(series.points[0].y);
    const double width = kNameLetter * static_cast<double>(series.name.size());
    const bool left = x + kNameGap + width > Frame::kWidth;
    const double from = left ? x - kNameGap - width : x + kNameGap;
    Place place{from, from + width, y + 4};
    while (std::ranges::any_of(taken, [&](const Place& other) { return place.meets(other); }))
      place.y += kNameHeight;
    taken.push_back(place);
    svg += fmt::format(R"(<text class="tick {} key {}" x="{:.1f}" y="{:.1f}">{}</text>)",
                       left ? "end" : "start", series_class(series.colour), left ? place.right : place.left,
                       place.y, escape(series.name));
  }
  return svg;
}

// Ranges with non-finite values are tinted.
std::string tints(const Frame& frame, const Series& series) {
  std::string svg;
  size_t drawn = 0;
  auto bad = [](const Point& point) { return !std::isfinite(point.y); };
  auto end = series.points.end();
  for (auto first = std::find_if(series.points.begin(), end, bad); first != end && drawn < kMostTints;
       ++drawn) {
    auto after = std::find_if_not(first, end, bad);
    double left = frame.x_at(first->x) - 1.5;
    double right = frame.x_at(std::prev(after)->x) + 1.5;
    svg += fmt::format(R"(<rect x="{:.1f}" y="{}" width="{:.1f}" height="{}"/>)", left, Frame::kTop,
                       right - left, Frame::kHeight - Frame::kTop - Frame::kBottom);
    if (drawn == 0) {
      bool late = left > Frame::kWidth * 0.75;
      svg += fmt::format(R"(<text class="{}" x="{:.1f}" y="{}">not finite</text>)", late ? "end" : "start",
                         late ? left - 6 : left + 6, Frame::kTop + 16);
    }
    first = std::find_if(after, end, bad);
  }
  return svg.empty() ? "" : R"(<g class="bad">)" + svg + "</g>";
}

const Point* nearest(const std::vector<Point>& points, double x) {
  if (points.empty()) return nullptr;
  auto after =
      std::lower_bound(points.begin(), points.end(), x, [](const Point& p, double v) { return p.x < v; });
  if (after == points.end()) return &points.back();
  if (after != points.begin() && x - std::prev(after)->x < after->x - x) --after;
  return &*after;
}

// A column that shows, on hover, a line, a dot on each series, and the values as the browser's tooltip.
std::string column(const LineChart& chart, const Frame& frame, double x, double width) {
  double centre = frame.x_at(x);
  std::string tip = fmt::format("{} {}", chart.x_label, value_text(x, chart.x_unit));
  std::string dots;
  for (const Series& series : chart.series) {
    const Point* point = series.faint ? nullptr : nearest(series.points, x);
    if (point == nullptr || std::abs(frame.x_at(point->x) - centre) > width) continue;
    if (!series.name.empty()) tip += fmt::format("\n{}: {}", series.name, value_text(point->y, chart.unit));
    if (!drawable(frame, point->y)) continue;
    dots += fmt::format(R"(<circle class="dot {}" cx="{:.1f}" cy="{:.1f}" r="4"/>)",
                        series_class(series.colour), frame.x_at(point->x), frame.y_at(point->y));
  }
  return fmt::format(R"(<g class="hit"><title>{}</title><rect x="{:.1f}" y="{}" width="{:.1f}" height="{}"/>)"
                     R"(<g class="guide"><path d="M{:.1f} {}V{}"/>{}</g></g>)",
                     escape(tip), centre - width / 2, Frame::kTop, width,
                     Frame::kHeight - Frame::kTop - Frame::kBottom, centre, Frame::kTop,
                     Frame::kHeight - Frame::kBottom, dots);
}

std::string columns(const LineChart& chart, const Frame& frame) {
  const Series* longest = nullptr;
  for (const Series& series : chart.series) {
    if (!series.faint && (!longest || series.points.size() > longest->points.size())) longest = &series;
  }
  if (longest == nullptr || longest->points.empty()) return "";
  size_t count = std::min(longest->points.size(), kMostColumns);
  double width = (Frame::kWidth - Frame::kLeft - Frame::kRight) / static_cast<double>(count);
  std::string svg;
  for (size_t i = 0; i < count; ++i) {
    size_t at = count == 1 ? 0 : i * (longest->points.size() - 1) / (count - 1);
    svg += column(chart, frame, longest->points[at].x, width);
  }
  return svg;
}

}  // namespace

std::string to_svg(const LineChart& chart) {
  const Ranges ranges = ranges_of(chart);
  const Frame frame = frame_of(chart, ranges);
  if (ranges.x.empty()) {
    return to_svg(frame, fmt::format(R"(<text class="label mid" x="{}" y="{}">no data</text>)",
                                     Frame::kWidth / 2, Frame::kHeight / 2));
  }
  std::string content;
  for (const Series& series : chart.series) content += series.faint ? "" : tints(frame, series);
  for (const Series& series : chart.series) content += draw(frame, series);
  if (is_scattered(chart)) content += names_of_points(chart, frame);
  return to_svg(frame, content + columns(chart, frame));
}

}  // namespace yoke::report
