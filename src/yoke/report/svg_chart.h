// Small charts as SVG, robust against NaN, single points and no points.
#pragma once

#include <string>
#include <vector>

#include "yoke/report/points.h"
#include "yoke/report/ticks.h"

namespace yoke::report {

struct Series {
  std::string name{};           // empty: neither in the legend nor in the tooltips
  std::vector<Point> points{};  // by increasing x; a non-finite y is a gap
  int colour = 1;               // from 1: series_class()
  bool faint = false;           // background: not in the legend and the tooltips
  bool theory = false;          // predicted, not measured: dashed, without dots
};

struct LineChart {
  std::string title{};
  std::string x_label{};
  std::string y_label{};
  Unit unit = Unit::kNumber;
  bool from_zero = false;  // the y axis starts at 0
  // Ends of the x axis, so that adjacent charts can share it; if equal, they are derived from the data.
  double x_from = 0;
  double x_to = 0;
  bool log = false;     // logarithmic y axis, if all values are positive
  bool log_x = false;   // the same for x
  bool whole_x = true;  // x is a count (steps): no ticks between
  Unit x_unit = Unit::kNumber;
  std::vector<Series> series{};
};

// A bar covers [from, to] on the x axis and has one value per layer.
struct StackedBar {
  double from = 0;
  double to = 0;
  std::vector<double> values{};
  std::string name{};  // written below it, if any bar has one, instead of numbers
  double theory = 0;   // predicted total: a dashed line across it; 0: none
  double low = 0;      // spread of the total over repetitions: a whisker from low to high, if they differ
  double high = 0;
};

struct StackedBars {
  std::string title{};
  std::string x_label{};
  std::string y_label{};
  Unit unit = Unit::kNumber;
  double y_to = 0;  // end of the y axis; 0: derived from the data
  bool legend = true;
  bool whole = false;                 // a bar represents the integer in its middle: ticks only there
  std::vector<std::string> layers{};  // bottom first, coloured 1, 2, …
  std::vector<StackedBar> bars{};
};

// Frequencies of 0, 1, 2, …: bars for integers, with a minimum axis length.
StackedBars histogram(const std::string& title, const std::string& x_label, const std::string& y_label,
                      const std::vector<double>& counts);

// A complete <svg> element; columns across the chart show their values on hover.
std::string to_svg(const LineChart& chart);
// Negative and non-finite values count as 0.
std::string to_svg(const StackedBars& chart);

}  // namespace yoke::report
