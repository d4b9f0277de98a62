// A graph in groups as a picture: who computes what, and what has to travel.
#pragma once

#include <string>
#include <vector>

namespace yoke::report {

struct GraphNode {
  std::string name;
  int group = 0;
};

struct GraphLine {
  int from = 0;
  int to = 0;  // later than `from`
};

struct GraphPicture {
  std::string title;
  std::string subtitle;
  std::vector<GraphNode> nodes;  // in an order of execution
  std::vector<GraphLine> lines;
  std::vector<std::string> groups;  // what the legend says of each
};

// A column for each step from the inputs, colours for groups, thick lines between them. Stands alone, for
// light and dark pages. Requires lines between nodes that are there, each to a later one.
std::string graph_svg(const GraphPicture& picture);

}  // namespace yoke::report
