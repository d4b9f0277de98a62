// A picture of a partitioned graph: which group computes what, and what is transferred.
#pragma once

#include <string>
#include <vector>

namespace yoke::report {

struct GraphNode {
  std::string name;
  int group = 0;
  std::string label = {};  // below it, where there is room
};

struct GraphLine {
  int from = 0;
  int to = 0;              // after `from`
  std::string label = {};  // beside it, if there is room and it crosses parts
  std::string title = {};  // tooltip
};

struct GraphPicture {
  std::string title;
  std::string subtitle;
  std::vector<GraphNode> nodes;  // in execution order
  std::vector<GraphLine> lines;
  std::vector<std::string> groups;  // legend of each
};

// One column per step from the inputs, one colour per group, thick lines between groups. Self-contained, for
// light and dark pages. Requires: lines between existing nodes, each to a later one.
std::string graph_svg(const GraphPicture& picture);

}  // namespace yoke::report
