#include "cli/partition_command.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>

#include "cli/output.h"
#include "yoke/base/error.h"
#include "yoke/base/terminal.h"
#include "yoke/base/text.h"
#include "yoke/base/units.h"
#include "yoke/plan/partition/partition_file.h"
#include "yoke/report/graph_svg.h"
#include "yoke/report/lab_page.h"
#include "yoke/report/table.h"

namespace yoke::cli {
namespace {

std::vector<std::vector<int>> nodes_by_part(const plan::Partition& partition) {
  std::vector<std::vector<int>> parts(partition.weights.size());
  for (size_t node = 0; node < partition.part_of.size(); ++node)
    parts[static_cast<size_t>(partition.part_of[node])].push_back(static_cast<int>(node));
  return parts;
}

std::string weight_text(double weight, plan::PartitionWeight kind) {
  if (kind == plan::PartitionWeight::kSeconds) return format_duration(weight);
  return kind == plan::PartitionWeight::kParameters ? format_bytes(weight) : format_count(weight);
}

// "0-4 7 9-11"
std::string ranges(const std::vector<int>& nodes) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < nodes.size();) {
    size_t end = i;
    while (end + 1 < nodes.size() && nodes[end + 1] == nodes[end] + 1) ++end;
    parts.push_back(end == i ? std::to_string(nodes[i]) : fmt::format("{}-{}", nodes[i], nodes[end]));
    i = end + 1;
  }
  return join(parts, " ");
}

report::LabTable parts_table(const plan::Partition& partition, plan::PartitionWeight kind) {
  report::LabTable table{{"part", "weight", "nodes", ""}, {}};
  std::vector<std::vector<int>> parts = nodes_by_part(partition);
  for (size_t i = 0; i < parts.size(); ++i)
    table.rows.push_back({std::to_string(i), weight_text(partition.weights[i], kind),
                          std::to_string(parts[i].size()), ranges(parts[i])});
  return table;
}

void print(const plan::Partition& partition, plan::PartitionWeight kind) {
  fmt::print(
      "{} cross machines per minibatch and direction; the heaviest part has {:.3f} times the average{}\n"
      "\n",
      format_bytes(partition.cut_bytes), plan::balance_of(partition),
      partition.optimal ? "; proven optimal" : "");
  report::LabTable parts = parts_table(partition, kind);
  report::Table table(parts.head);
  for (std::vector<std::string>& row : parts.rows) table.add(std::move(row));
  fmt::print("{}", table.to_text(terminal::is_terminal(STDOUT_FILENO) ? terminal::width(STDOUT_FILENO) : 0));
}

std::string picture(const plan::Profile& profile, const plan::Partition& partition,
                    plan::PartitionWeight kind, const std::string& file) {
  report::GraphPicture out;
  out.title = fmt::format("{} on {} machines", file, partition.weights.size());
  out.subtitle =
      fmt::format("{} cross machines per minibatch (thick lines)", format_bytes(partition.cut_bytes));
  for (size_t i = 0; i < profile.layers.size(); ++i) {
    out.nodes.push_back({fmt::format("{} {}", i, profile.layers[i].name), partition.part_of[i]});
    if (profile.is_chain() && i > 0) out.lines.push_back({static_cast<int>(i) - 1, static_cast<int>(i)});
  }
  for (const plan::Edge& edge : profile.edges) out.lines.push_back({edge.from, edge.to});
  for (size_t i = 0; i < partition.weights.size(); ++i)
    out.groups.push_back(fmt::format("machine {}: {}", i, weight_text(partition.weights[i], kind)));
  return report::graph_svg(out);
}

report::LabPage figures(const CommandLine& line, const plan::Profile& profile,
                        const plan::Partition& partition, plan::PartitionWeight kind) {
  const std::string file = std::filesystem::path(line.partition.graph).filename().string();
  report::LabPage page;
  page.title = fmt::format("{} in {} parts", file, partition.weights.size());
  page.command = line.typed;
  page.about = fmt::format(
      "{} cross machines per minibatch and direction; the heaviest part has {:.3f} times the average.",
      format_bytes(partition.cut_bytes), plan::balance_of(partition));
  page.add({"graph", "", picture(profile, partition, kind, file), "", /*wide=*/true});
  page.add(parts_table(partition, kind));
  return page;
}

}  // namespace

int partition_graph(const CommandLine& line) {
  const PartitionArguments& arguments = line.partition;
  check_figures(line.figures);
  plan::PartitionWeight kind = plan::parse_partition_weight(arguments.weight);
  plan::Profile profile = plan::read_profile(arguments.graph);
  plan::PartitionOptions options;
  options.parts = static_cast<int>(std::clamp<int64_t>(arguments.parts, -1, 1 << 30));
  options.balance = arguments.balance;
  options.seed = arguments.seed;
  plan::Partition partition = plan::make_partition(plan::graph_of(profile, kind), options);
  if (line.figures.wanted()) write_figures(line.figures, figures(line, profile, partition, kind));
  if (line.json)
    print_json(plan::to_json(partition, profile));
  else
    print(partition, kind);
  return 0;
}

}  // namespace yoke::cli
