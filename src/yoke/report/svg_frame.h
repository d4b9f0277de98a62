// The frame of every chart: axes, grid, labels, legend.
//
// Charts use classes instead of colours (chart grid tick label line faint theory dot bar guide;
// series_class() for series): the page's style sheet colours them for light and dark.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "yoke/report/ticks.h"

namespace yoke::report {

struct Axis {
  std::vector<double> ticks;
  double low = 0;
  double high = 1;
  bool log = false;
  std::vector<std::string> names{};  // of the ticks, instead of their numbers
  // Relative position of `value`: 0 at `low`, 1 at `high`.
  double share(double value) const;
};

// An axis for finite values in [low, high]; logarithmic only if low > 0.
Axis make_axis(double low, double high, bool log);

// Series 1 to 12 have a colour each, 13 to 24 the same ones dotted, and so on.
constexpr int kColours = 12;
std::string series_class(int series);

struct LegendEntry {
  std::string name;
  int colour = 1;
  bool theory = false;
};

struct Frame {
  std::string title;  // for screen readers and on hover
  std::string x_label;
  std::string y_label;
  Unit unit = Unit::kNumber;
  Unit x_unit = Unit::kNumber;
  Axis x;
  Axis y;
  std::vector<LegendEntry> legend;  // drawn if there are at least two

  static constexpr double kWidth = 480;
  static constexpr double kHeight = 262;
  static constexpr double kLeft = 64;
  static constexpr double kRight = 18;
  static constexpr double kTop = 36;
  static constexpr double kBottom = 40;

  double x_at(double value) const { return kLeft + x.share(value) * (kWidth - kLeft - kRight); }
  double y_at(double value) const { return kHeight - kBottom - y.share(value) * (kHeight - kTop - kBottom); }
};

// A whole `<svg>` element with `content` drawn inside the frame.
std::string to_svg(const Frame& frame, const std::string& content);

}  // namespace yoke::report
