#include "yoke/report/partition_section.h"

#include <fmt/core.h>

#include <map>

#include "yoke/base/units.h"
#include "yoke/report/graph_svg.h"
#include "yoke/report/html.h"
#include "yoke/report/timeline_svg.h"

namespace yoke::report {

std::string partition_svg(const metrics::PartitionRun& run) {
  GraphPicture picture;
  picture.title = fmt::format("{} nodes in {} parts", run.nodes.size(), run.parts);
  picture.subtitle = fmt::format("{} crossed in one pass, and gradients came back (thick lines)",
                                 format_bytes(static_cast<double>(run.cut_bytes())));
  std::vector<double> seconds(static_cast<size_t>(run.parts));
  for (size_t i = 0; i < run.nodes.size(); ++i) {
    const metrics::PartitionRun::Node& node = run.nodes[i];
    picture.nodes.push_back({fmt::format("{} {}: forward {}, backward {}", i, node.name,
                                         format_duration(node.forward), format_duration(node.backward)),
                             node.part, format_duration(node.forward + node.backward)});
    seconds[static_cast<size_t>(node.part)] += node.forward + node.backward;
  }
  std::map<std::pair<int, int>, const metrics::PartitionRun::Crossing*> crossings;
  for (const metrics::PartitionRun::Crossing& one : run.crossings) crossings[{one.node, one.part}] = &one;
  for (auto [from, to] : run.edges) {
    const int part = run.nodes[static_cast<size_t>(to)].part;
    auto found = crossings.find({from, part});
    GraphLine line{from, to};
    if (found != crossings.end() && run.nodes[static_cast<size_t>(from)].part != part) {
      line.label = format_bytes(static_cast<double>(found->second->bytes));
      line.title =
          fmt::format("{} to part {}: {} forward, {} back", run.nodes[static_cast<size_t>(from)].name, part,
                      line.label, format_bytes(static_cast<double>(found->second->gradient_bytes)));
      crossings.erase(found);  // it crossed once for all readers there
    }
    picture.lines.push_back(std::move(line));
  }
  for (size_t part = 0; part < seconds.size(); ++part)
    picture.groups.push_back(fmt::format("part {}: {}", part, format_duration(seconds[part])));
  return graph_svg(picture);
}

std::string partition_section(const metrics::PartitionRun& run) {
  metrics::Timeline timeline = metrics::timeline_of(run);
  return fmt::format(
      "<h2>Partition</h2>\n<figure class=\"card\"><p>{} nodes in {} parts{}; {} crossed forward in one pass "
      "of "
      "{}. Idle {:.1f} %.</p>{}</figure>\n<figure class=\"card\">{}</figure>\n",
      run.nodes.size(), run.parts, run.replicas > 1 ? fmt::format(", {} replicas", run.replicas) : "",
      escape(format_bytes(static_cast<double>(run.cut_bytes()))), escape(format_duration(timeline.makespan)),
      100 * timeline.idle_fraction(), partition_svg(run),
      timeline_svg("One pass, node by node (numbers are those of nodes)", {timeline}));
}

}  // namespace yoke::report
