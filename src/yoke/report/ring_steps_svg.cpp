#include "yoke/report/ring_steps_svg.h"

#include <fmt/core.h>

#include <algorithm>

#include "yoke/report/html.h"
#include "yoke/report/svg_frame.h"
#include "yoke/report/topology_layout.h"

namespace yoke::report {
namespace {

constexpr int kColumns = 3, kAdding = 1, kGathering = 3, kOthers = 6;
constexpr double kPanel = 340, kPanelGap = 20, kLegend = 30, kTitle = 22, kCell = 8, kLayers = 24,
                 kRankName = 12;

// Cells of a rank, one below the other: the more ranks are in the sum of a part, the fuller.
std::string cells(const RingSteps::Step& step, size_t rank, const TopologyLayout::Place& place) {
  std::string svg;
  const std::vector<int>& sums = step.sums[rank];
  for (size_t part = 0; part < sums.size(); ++part) {
    const auto whole = static_cast<int>(sums.size());
    const double y = place.y - place.height / 2 + kCell * static_cast<double>(part);
    svg += fmt::format(
        R"(<rect class="bar {}{}" fill-opacity="{:.2f}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}">)"
        R"(<title>rank {}, part {}: {} of {} ranks</title></rect>)",
        series_class(sums[part] == whole ? kGathering : kAdding),
        step.arrived[rank] == static_cast<int>(part) ? " arrived" : "",
        sums[part] == whole ? 1.0 : 0.1 + 0.8 * sums[part] / whole, place.x - place.width / 2, y, place.width,
        kCell - 1.5, rank, part, sums[part], whole);
  }
  return svg;
}

std::string panel(const RingSteps& all, const RingSteps::Step& step, const TopologyLayout& layout) {
  std::string svg = fmt::format(R"(<text class="label" x="0" y="12">{}</text>)", escape(step.title));
  for (size_t i = 0; i < all.machine.links.size(); ++i) {
    const TopologyPicture::Link& link = all.machine.links[i];
    const int messages = step.messages[i];
    svg +=
        fmt::format(R"(<path class="line {}{}" style="stroke-width:{:.1f}" d="{}"><title>{}</title></path>)",
                    series_class(messages == 0  ? kOthers
                                 : step.gathers ? kGathering
                                                : kAdding),
                    messages == 0 ? " faint" : "", messages == 0 ? 1.2 : std::min(6.0, 1.0 + messages),
                    layout.path(link), escape(fmt::format("{}: {} each way", link.title, messages)));
  }
  for (size_t i = 0; i < all.machine.nodes.size(); ++i) {
    const TopologyLayout::Place& place = layout.place(static_cast<int>(i));
    const auto rank = std::ranges::find(all.ranks, static_cast<int>(i));
    if (rank != all.ranks.end()) {
      svg += cells(step, static_cast<size_t>(rank - all.ranks.begin()), place);
      svg += fmt::format(R"(<text class="tick mid" x="{:.1f}" y="{:.1f}">{}</text>)", place.x,
                         place.y + place.height / 2 + kRankName, rank - all.ranks.begin());
      continue;
    }
    svg += fmt::format(R"(<rect class="bar {}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}" rx="3"/>)"
                       R"(<text class="on mid" x="{:.1f}" y="{:.1f}">{}</text>)",
                       series_class(kOthers), place.x - place.width / 2, place.y - place.height / 2,
                       place.width, place.height, place.x, place.y + 4, escape(all.machine.nodes[i].name));
  }
  return svg;
}

std::string legend() {
  return fmt::format(
      R"(<text class="label" x="0" y="14"><tspan class="key {0}">━</tspan>)"
      R"(<tspan dx="5">messages that are added</tspan><tspan class="key {1}" dx="14">━</tspan>)"
      R"(<tspan dx="5">messages that are passed on</tspan><tspan class="key {0}" dx="14">■</tspan>)"
      R"(<tspan dx="5">a part: the fuller, the more ranks are in it</tspan>)"
      R"(<tspan class="key {1}" dx="14">■</tspan><tspan dx="5">the sum of all</tspan>)"
      R"(<tspan dx="14">framed: just arrived</tspan></text>)",
      series_class(kAdding), series_class(kGathering));
}

}  // namespace

std::string ring_steps_svg(const RingSteps& all) {
  const LayoutSize size{.width = kPanel,
                        .layer_gap = kLayers,
                        .node_height = 18,
                        .node_width = 62,
                        .top = kTitle,
                        .tall_kind = all.worker_kind,
                        .tall_height = kCell * static_cast<double>(all.ranks.size())};
  const TopologyLayout layout(all.machine, size);
  const double row = layout.height() + kRankName + kPanelGap;
  std::string panels;
  for (size_t i = 0; i < all.steps.size(); ++i)
    panels +=
        fmt::format(R"svg(<g transform="translate({:.0f} {:.0f})">{}</g>)svg",
                    static_cast<double>(i % kColumns) * (kPanel + kPanelGap),
                    kLegend + static_cast<double>(i / kColumns) * row, panel(all, all.steps[i], layout));
  const size_t rows = (all.steps.size() + kColumns - 1) / kColumns;
  return fmt::format(
      R"(<svg class="chart broad" role="img" viewBox="0 0 {:.0f} {:.0f}"><title>{}</title>{}{}</svg>)",
      kColumns * (kPanel + kPanelGap) - kPanelGap, kLegend + static_cast<double>(rows) * row,
      escape(all.label), legend(), panels);
}

}  // namespace yoke::report
