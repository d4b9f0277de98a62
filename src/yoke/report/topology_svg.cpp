#include "yoke/report/topology_svg.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "yoke/report/html.h"
#include "yoke/report/svg_frame.h"
#include "yoke/report/topology_layout.h"

namespace yoke::report {
namespace {

using Place = TopologyLayout::Place;

constexpr double kNodeHeight = 30;
constexpr int kFirstLinkColour = 6;

std::string node_svg(const Place& place, const std::string& name, int colour) {
  return fmt::format(R"(<rect class="bar {}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}" rx="5"/>)"
                     R"(<text class="on mid" x="{:.1f}" y="{:.1f}">{}</text>)",
                     series_class(colour), place.x - place.width / 2, place.y - place.height / 2, place.width,
                     place.height, place.x, place.y + 4, escape(name));
}

// Kinds in the order of their first use.
int colour_of(std::vector<std::string>& kinds, const std::string& kind) {
  auto found = std::find(kinds.begin(), kinds.end(), kind);
  if (found == kinds.end()) found = kinds.insert(kinds.end(), kind);
  return static_cast<int>(found - kinds.begin()) + 1;
}

std::string link_svg(const TopologyLayout& layout, const TopologyPicture::Link& link, int colour) {
  return fmt::format(R"(<path class="line {}" style="stroke-width:{:.1f}" d="{}"><title>{}</title></path>)",
                     series_class(colour), std::min(6.0, 1.2 + 0.9 * link.width), layout.path(link),
                     escape(link.title));
}

}  // namespace

std::string topology_svg(const TopologyPicture& picture) {
  const LayoutSize size;
  const TopologyLayout layout(picture, size);
  std::string lines, nodes, legend;
  std::vector<std::string> link_kinds, node_kinds;
  for (const TopologyPicture::Link& link : picture.links)
    lines += link_svg(layout, link, kFirstLinkColour + colour_of(link_kinds, link.kind));
  for (size_t i = 0; i < picture.nodes.size(); ++i)
    nodes += node_svg(layout.place(static_cast<int>(i)), picture.nodes[i].name,
                      colour_of(node_kinds, picture.nodes[i].kind));
  for (size_t i = 0; i < link_kinds.size(); ++i)
    legend += fmt::format(R"(<tspan class="key {}" dx="14">━</tspan><tspan dx="5">{}</tspan>)",
                          series_class(kFirstLinkColour + static_cast<int>(i) + 1), escape(link_kinds[i]));
  return fmt::format(R"(<svg class="chart broad" role="img" viewBox="0 0 {} {:.0f}"><title>{}</title>)"
                     R"(<text class="label" x="0" y="16">{}</text>{}{}</svg>)",
                     size.width, layout.height(), escape(picture.label), legend, lines, nodes);
}

std::string rings_svg(const std::string& label, const std::vector<std::string>& names,
                      const std::vector<std::vector<int>>& rings) {
  constexpr double kSide = 480, kHeight = 400, kRadius = 150;
  const double width = std::min(
      64.0, 0.8 * 2 * std::numbers::pi * kRadius / static_cast<double>(std::max<size_t>(1, names.size())));
  std::vector<Place> places;
  for (size_t i = 0; i < names.size(); ++i) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(names.size());
    places.push_back(
        {kSide / 2 + kRadius * std::sin(angle), kHeight / 2 - kRadius * std::cos(angle), width, kNodeHeight});
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
