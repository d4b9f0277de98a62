#include "yoke/report/topology_svg.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "yoke/report/html.h"
#include "yoke/report/svg_frame.h"

namespace yoke::report {
namespace {

constexpr double kMachineWidth = 760, kLayerGap = 92, kNodeHeight = 30, kTopEdge = 40;

struct Place {
  double x = 0, y = 0, width = 0;
};

std::string node_svg(const Place& place, const std::string& name, int colour) {
  return fmt::format(R"(<rect class="bar {}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}" rx="5"/>)"
                     R"(<text class="on mid" x="{:.1f}" y="{:.1f}">{}</text>)",
                     series_class(colour), place.x - place.width / 2, place.y - kNodeHeight / 2, place.width,
                     kNodeHeight, place.x, place.y + 4, escape(name));
}

// Kinds in the order of their first use.
int colour_of(std::vector<std::string>& kinds, const std::string& kind) {
  auto found = std::find(kinds.begin(), kinds.end(), kind);
  if (found == kinds.end()) found = kinds.insert(kinds.end(), kind);
  return static_cast<int>(found - kinds.begin()) + 1;
}

class MachineDrawing {
 public:
  explicit MachineDrawing(const TopologyPicture& picture) : picture_(picture), places_(picture.nodes.size()) {
    for (size_t i = 0; i < picture.nodes.size(); ++i)
      layers_[picture.nodes[i].layer].push_back(static_cast<int>(i));
    double y = kTopEdge + kNodeHeight / 2;
    for (auto& [layer, members] : layers_) {
      const double slot = kMachineWidth / static_cast<double>(members.size());
      for (size_t i = 0; i < members.size(); ++i)
        places_[static_cast<size_t>(members[i])] = {slot * (static_cast<double>(i) + 0.5), y,
                                                    std::min(92.0, slot - 6)};
      y += kLayerGap + arc_room(layer);
    }
    height_ = y - kLayerGap + kNodeHeight / 2 + 8;
  }

  std::string draw() {
    std::string lines, nodes, legend;
    std::vector<std::string> link_kinds, node_kinds;
    for (const TopologyPicture::Link& link : picture_.links)
      lines += line(link, kFirstLinkColour + colour_of(link_kinds, link.kind));
    for (size_t i = 0; i < places_.size(); ++i)
      nodes += node_svg(places_[i], picture_.nodes[i].name, colour_of(node_kinds, picture_.nodes[i].kind));
    for (size_t i = 0; i < link_kinds.size(); ++i)
      legend += fmt::format(R"(<tspan class="key {}" dx="14">━</tspan><tspan dx="5">{}</tspan>)",
                            series_class(kFirstLinkColour + static_cast<int>(i) + 1), escape(link_kinds[i]));
    return fmt::format(R"(<svg class="chart broad" role="img" viewBox="0 0 {} {:.0f}"><title>{}</title>)"
                       R"(<text class="label" x="0" y="16">{}</text>{}{}</svg>)",
                       kMachineWidth, height_, escape(picture_.label), legend, lines, nodes);
  }

 private:
  static constexpr int kFirstLinkColour = 6;

  bool within_layer(const TopologyPicture::Link& link) const {
    return picture_.nodes[static_cast<size_t>(link.a)].layer ==
           picture_.nodes[static_cast<size_t>(link.b)].layer;
  }

  double arc_depth(const TopologyPicture::Link& link) const {
    const double distance =
        std::abs(places_[static_cast<size_t>(link.a)].x - places_[static_cast<size_t>(link.b)].x);
    return 14 + 0.2 * distance;
  }

  double arc_room(int layer) const {
    double room = 0;
    for (const TopologyPicture::Link& link : picture_.links)
      if (within_layer(link) && picture_.nodes[static_cast<size_t>(link.a)].layer == layer)
        room = std::max(room, arc_depth(link));
    return room;
  }

  std::string line(const TopologyPicture::Link& link, int colour) const {
    const Place &a = places_[static_cast<size_t>(link.a)], &b = places_[static_cast<size_t>(link.b)];
    const double half = kNodeHeight / 2, width = std::min(6.0, 1.2 + 0.9 * link.width);
    const std::string path =
        within_layer(link)
            ? fmt::format("M{:.1f} {:.1f}Q{:.1f} {:.1f} {:.1f} {:.1f}", a.x, a.y + half, (a.x + b.x) / 2,
                          a.y + half + 2 * arc_depth(link), b.x, b.y + half)
            : fmt::format("M{:.1f} {:.1f}L{:.1f} {:.1f}", a.x, a.y < b.y ? a.y + half : a.y - half, b.x,
                          a.y < b.y ? b.y - half : b.y + half);
    return fmt::format(R"(<path class="line {}" style="stroke-width:{:.1f}" d="{}"><title>{}</title></path>)",
                       series_class(colour), width, path, escape(link.title));
  }

  const TopologyPicture& picture_;
  std::vector<Place> places_;
  std::map<int, std::vector<int>> layers_;
  double height_ = 0;
};

}  // namespace

std::string topology_svg(const TopologyPicture& picture) {
  return MachineDrawing(picture).draw();
}

std::string rings_svg(const std::string& label, const std::vector<std::string>& names,
                      const std::vector<std::vector<int>>& rings) {
  constexpr double kSide = 480, kHeight = 400, kRadius = 150;
  const double width = std::min(
      64.0, 0.8 * 2 * std::numbers::pi * kRadius / static_cast<double>(std::max<size_t>(1, names.size())));
  std::vector<Place> places;
  for (size_t i = 0; i < names.size(); ++i) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(names.size());
    places.push_back({kSide / 2 + kRadius * std::sin(angle), kHeight / 2 - kRadius * std::cos(angle), width});
  }
  std::string svg = fmt::format(R"(<svg class="chart" role="img" viewBox="0 0 {} {}"><title>{}</title>)",
                                kSide, kHeight, escape(label));
  for (size_t ring = 0; ring < rings.size(); ++ring) {
    // Rings that share a pair of devices do not cover each other.
    const double shift = 3.0 * (static_cast<double>(ring) - (static_cast<double>(rings.size()) - 1) / 2);
    std::string path;
    for (int worker : rings[ring]) {
      const Place& place = places[static_cast<size_t>(worker)];
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", place.x + shift, place.y + shift);
    }
    svg += fmt::format(R"(<path class="line {}" d="{}Z"/>)", series_class(static_cast<int>(ring) + 1), path);
  }
  for (size_t i = 0; i < names.size(); ++i) svg += node_svg(places[i], names[i], 6);
  return svg + "</svg>";
}

}  // namespace yoke::report
