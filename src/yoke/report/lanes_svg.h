// Pictures of what several workers did when: one row per worker, time to the right.
#pragma once

#include <string>
#include <vector>

namespace yoke::report {

// Colours of spans. Kinds of pipelines and of learners share them.
enum class Look : unsigned char { kBlue, kOrange, kGreen, kViolet, kGrey };

struct LaneSpan {
  int row = 0;
  double start = 0;
  double end = 0;
  Look look = Look::kBlue;
  int shade = 0;             // 0: full, up to 3: paler
  bool low = false;          // a thin bar at the lower edge of the row
  bool high = false;         // at the upper one
  std::string text = {};     // inside, where it fits
  std::string below = {};    // a second line inside, where it fits
  std::string tooltip = {};  // `start` and `end` are appended
};

struct Lanes {
  std::string name = {};               // above the rows
  std::string about = {};              // beside it
  std::vector<std::string> rows = {};  // names
  std::vector<LaneSpan> spans = {};
  std::vector<double> marks = {};  // times of vertical lines
  double end = 0;                  // of the last span
};

struct LanesPicture {
  std::string title = {};  // of a single picture; empty: none is drawn
  std::string label = {};  // for screen readers, where there is no title
  std::vector<Lanes> parts = {};
  struct Entry {
    Look look;
    std::string text;
  };
  std::vector<Entry> legend = {};
  double width = 1120;
  double row = 30;
  bool steps = false;  // the axis counts steps instead of seconds
};

// A self-contained <svg> for light and dark pages, parts below each other on one scale. If a part has too
// many spans, the first are drawn, and the picture says so.
std::string lanes_svg(const LanesPicture& picture);

}  // namespace yoke::report
