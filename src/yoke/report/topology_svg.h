// Pictures of a machine: devices in layers with their links, and rings through some of them.
#pragma once

#include <string>
#include <vector>

namespace yoke::report {

struct TopologyPicture {
  std::string label;  // for screen readers
  struct Node {
    std::string name;
    int layer = 0;  // from the top
    std::string kind;
  };
  std::vector<Node> nodes;
  struct Link {
    int a = 0, b = 0;
    std::string kind;   // with its bandwidth, as the legend writes it
    std::string title;  // tooltip
    int width = 1;      // number of parallel links
  };
  std::vector<Link> links;
};

// Links between nodes of one layer are arcs below it. Requires ends of links within `nodes`.
std::string topology_svg(const TopologyPicture& picture);

// Rings through `names`, which stand on a circle; one colour per ring. Requires indices within `names`.
std::string rings_svg(const std::string& label, const std::vector<std::string>& names,
                      const std::vector<std::vector<int>>& rings);

}  // namespace yoke::report
