#include "yoke/report/topology_layout.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace yoke::report {
namespace {

constexpr double kBottom = 8, kArcDepth = 14, kArcSlope = 0.2, kNodeGap = 6;

}  // namespace

TopologyLayout::TopologyLayout(const TopologyPicture& picture, const LayoutSize& size)
    : picture_(picture), places_(picture.nodes.size()) {
  std::map<int, std::vector<int>> layers;
  for (size_t i = 0; i < picture.nodes.size(); ++i)
    layers[picture.nodes[i].layer].push_back(static_cast<int>(i));
  double top = size.top, end = size.top;
  for (const auto& [layer, members] : layers) {
    const double slot = size.width / static_cast<double>(members.size());
    double highest = 0;
    for (size_t i = 0; i < members.size(); ++i) {
      const bool tall = picture.nodes[static_cast<size_t>(members[i])].kind == size.tall_kind;
      const double height = tall ? size.tall_height : size.node_height;
      places_[static_cast<size_t>(members[i])] = {
          slot * (static_cast<double>(i) + 0.5), top + height / 2,
          std::min(size.node_width, slot - std::min(kNodeGap, slot / 6)), height};
      highest = std::max(highest, height);
    }
    end = top + highest + arc_room(layer);
    top = end + size.layer_gap;
  }
  height_ = end + kBottom;
}

bool TopologyLayout::within_layer(const TopologyPicture::Link& link) const {
  return picture_.nodes[static_cast<size_t>(link.a)].layer ==
         picture_.nodes[static_cast<size_t>(link.b)].layer;
}

double TopologyLayout::arc_depth(const TopologyPicture::Link& link) const {
  return kArcDepth + kArcSlope * std::abs(place(link.a).x - place(link.b).x);
}

double TopologyLayout::arc_room(int layer) const {
  double room = 0;
  for (const TopologyPicture::Link& link : picture_.links)
    if (within_layer(link) && picture_.nodes[static_cast<size_t>(link.a)].layer == layer)
      room = std::max(room, arc_depth(link));
  return room;
}

std::string TopologyLayout::path(const TopologyPicture::Link& link) const {
  const Place &a = place(link.a), &b = place(link.b);
  const double below_a = a.y + a.height / 2, below_b = b.y + b.height / 2;
  if (within_layer(link))
    return fmt::format("M{:.1f} {:.1f}Q{:.1f} {:.1f} {:.1f} {:.1f}", a.x, below_a, (a.x + b.x) / 2,
                       below_a + 2 * arc_depth(link), b.x, below_b);
  return fmt::format("M{:.1f} {:.1f}L{:.1f} {:.1f}", a.x, a.y < b.y ? below_a : a.y - a.height / 2, b.x,
                     a.y < b.y ? b.y - b.height / 2 : below_b);
}

}  // namespace yoke::report
