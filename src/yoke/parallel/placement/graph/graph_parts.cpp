#include "yoke/parallel/placement/graph/graph_parts.h"

#include <algorithm>
#include <set>

#include "yoke/base/error.h"
#include "yoke/parallel/common/transfers.h"

namespace yoke::parallel {

std::vector<int> GraphParts::nodes_of(int part) const {
  std::vector<int> nodes;
  for (int node = 0; node <= graph.last(); ++node)
    if (holds(part, node)) nodes.push_back(node);
  return nodes;
}

std::vector<int> GraphParts::readers_of(int node) const {
  std::set<int> readers;
  for (auto [from, to] : graph.edges())
    if (from == node && !holds(part_of[static_cast<size_t>(node)], to))
      readers.insert(part_of[static_cast<size_t>(to)]);
  return {readers.begin(), readers.end()};
}

std::vector<int> GraphParts::reads_of(int part) const {
  std::set<int> nodes;
  for (auto [from, to] : graph.edges())
    if (holds(part, to) && !holds(part, from)) nodes.insert(from);
  return {nodes.begin(), nodes.end()};
}

int GraphParts::first_reader(int part, int node) const {
  for (auto [from, to] : graph.edges())  // sorted by reader
    if (from == node && holds(part, to)) return to;
  return -1;
}

bool GraphParts::reads_batch(int part) const {
  return std::ranges::any_of(nodes_of(part), [&](int node) { return graph.reads_batch(node); });
}

GraphParts make_parts(const models::Model& model, std::vector<int> part_of, int count) {
  GraphParts parts{models::graph_of(model), std::move(part_of), count};
  const size_t nodes = parts.graph.nodes.size();
  if (nodes > Line::kMostBoundaries)
    throw ConfigError("parallel.partition: {} has {} nodes; at most {} can be distributed.", model.name,
                      nodes, Line::kMostBoundaries);
  if (parts.part_of.size() != nodes)
    throw ConfigError("parallel.partition: a partition of {} nodes, but {} has {}.", parts.part_of.size(),
                      model.name, nodes);
  for (int part : parts.part_of)
    if (part < 0 || part >= count)
      throw ConfigError("parallel.partition: part {} of {}. Parts are numbered from 0.", part, count);
  for (int part = 0; part < count; ++part)
    if (parts.nodes_of(part).empty())
      throw ConfigError("parallel.partition: part {} of {} has no nodes; {} has {}. Use fewer parts.", part,
                        count, model.name, nodes);
  return parts;
}

std::vector<OwnedTensor> owned_tensors(const models::Model& model, const GraphParts& parts) {
  std::vector<Modules> used(static_cast<size_t>(parts.parts));
  for (size_t node = 0; node < parts.graph.nodes.size(); ++node) {
    Modules& of_part = used[static_cast<size_t>(parts.part_of[node])];
    const Modules& own = parts.graph.nodes[node].modules;
    of_part.insert(of_part.end(), own.begin(), own.end());
  }
  return owned_tensors(model, used, parts.parts);
}

std::string to_string(const GraphParts& parts) {
  constexpr size_t kNamed = 3;
  std::string text;
  for (int part = 0; part < parts.parts; ++part) {
    std::vector<int> nodes = parts.nodes_of(part);
    text += fmt::format("{}part {}: ", part > 0 ? "; " : "", part);
    for (size_t i = 0; i < std::min(kNamed, nodes.size()); ++i)
      text += (i > 0 ? ", " : "") + parts.graph.nodes[static_cast<size_t>(nodes[i])].name;
    if (nodes.size() > kNamed) text += fmt::format(" and {} more", nodes.size() - kNamed);
  }
  return text;
}

}  // namespace yoke::parallel
