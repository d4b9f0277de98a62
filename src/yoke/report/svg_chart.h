// Small charts as SVG, safe for whatever numbers come: NaN, one point, none.
#pragma once

#include <string>
#include <vector>

#include "yoke/report/points.h"
#include "yoke/report/ticks.h"

namespace yoke::report {

struct Series {
  std::string name{};
  std::vector<Point> points{};  // by increasing x; a y that is not finite is a gap
  int colour = 1;               // 1 to 6
  bool faint = false;           // background: not in the legend, not in the tooltips
};

struct LineChart {
  std::string title{};
  std::string x_label{};
  std::string y_label{};
  Unit unit = Unit::kNumber;
  bool from_zero = false;  // the y axis starts at 0
  // Ends of the x axis, so that charts side by side can share it; where they are equal, the data decide.
  double x_from = 0;
  double x_to = 0;
  bool log = false;  // logarithmic y axis, where all values are positive
  std::vector<Series> series{};
};

// A bar stands for [from, to] on the x axis and is cut into one value a layer.
struct StackedBar {
  double from = 0;
  double to = 0;
  std::vector<double> values{};
};

struct StackedBars {
  std::string title{};
  std::string x_label{};
  std::string y_label{};
  Unit unit = Unit::kNumber;
  bool legend = true;
  bool whole = false;                 // a bar stands for the whole number in its middle: ticks only there
  std::vector<std::string> layers{};  // bottom first, coloured 1, 2, …
  std::vector<StackedBar> bars{};
};

// How often 0, 1, 2, … came: bars for whole numbers, the axis never shorter than a few of them.
StackedBars histogram(const std::string& title, const std::string& x_label, const std::string& y_label,
                      const std::vector<double>& counts);

// A whole <svg> element; columns across the chart tell their values on hover.
std::string to_svg(const LineChart& chart);
// Values that are negative or not finite count as 0.
std::string to_svg(const StackedBars& chart);

}  // namespace yoke::report
