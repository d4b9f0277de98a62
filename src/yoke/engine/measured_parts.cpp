#include "yoke/engine/measured_parts.h"

#include <algorithm>
#include <limits>

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/base/units.h"
#include "yoke/engine/profile_model.h"
#include "yoke/models/graph.h"
#include "yoke/plan/partition/partition_file.h"

namespace yoke::engine {
namespace {

constexpr double kFirstBalance = 1.1, kLooser = 1.15;

// The first balance that can be kept.
plan::Partition balanced(const plan::PartitionGraph& graph, int parts) {
  for (double balance = kFirstBalance;; balance *= kLooser) {
    try {
      return plan::make_partition(graph, {.parts = parts, .balance = balance});
    } catch (const ConfigError&) {
      if (balance > parts) throw;
    }
  }
}

// A loose balance may leave a part without nodes: it gets the node that crosses least there.
void fill_empty_parts(const plan::PartitionGraph& graph, std::vector<int>& part_of, int parts) {
  auto size_of = [&](int part) { return std::ranges::count(part_of, part); };
  for (int part = 0; part < parts; ++part) {
    if (size_of(part) > 0) continue;
    double least = std::numeric_limits<double>::infinity();
    size_t chosen = 0;
    for (size_t node = 0; node < part_of.size(); ++node) {
      if (size_of(part_of[node]) < 2) continue;
      const int before = std::exchange(part_of[node], part);
      const double bytes = plan::cut_bytes(graph, part_of);
      part_of[node] = before;
      if (bytes >= least) continue;
      least = bytes;
      chosen = node;
    }
    part_of[chosen] = part;
  }
}

}  // namespace

std::vector<int> measured_parts(const Worker& worker, int64_t batch, int parts) {
  plan::Profile profile = profile_graph(worker, batch, {.warm_up = 1, .repeats = 3});
  const auto nodes = static_cast<int>(profile.layers.size());
  if (nodes < parts)
    throw ConfigError("parallel.partition = \"auto\": {} parts, but {} has {} nodes. Use at most {}.", parts,
                      worker.model.name, nodes, nodes);
  plan::PartitionGraph graph = plan::graph_of(profile);
  std::vector<int> part_of = balanced(graph, parts).part_of;
  fill_empty_parts(graph, part_of, parts);
  log::info("partition: {} nodes in {} parts, {} cross per minibatch and direction", nodes, parts,
            format_bytes(plan::cut_bytes(graph, part_of)));
  return part_of;
}

std::vector<int> parts_of_file(const models::ModelOptions& model, const std::string& file) {
  std::vector<std::string> names;
  for (const models::Block& node : models::graph_of(models::lay_out(model)).nodes) names.push_back(node.name);
  return plan::parts_of_nodes(plan::read_partition(file), names, file);
}

}  // namespace yoke::engine
