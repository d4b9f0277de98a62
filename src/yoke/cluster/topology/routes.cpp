#include "yoke/cluster/topology/routes.h"

#include <algorithm>
#include <limits>
#include <map>
#include <queue>
#include <tuple>

#include "yoke/base/error.h"

namespace yoke::cluster {
namespace {

struct Edge {
  int to;
  int directed_link;
};

using Graph = std::vector<std::vector<Edge>>;  // [device]

Graph graph_of(const Topology& topology) {
  std::map<std::string, int> index;
  for (size_t i = 0; i < topology.devices.size(); ++i) index[topology.devices[i].name] = static_cast<int>(i);
  Graph graph(topology.devices.size());
  for (size_t l = 0; l < topology.links.size(); ++l) {
    int a = index.at(topology.links[l].a), b = index.at(topology.links[l].b);
    int directed = 2 * static_cast<int>(l);
    graph[static_cast<size_t>(a)].push_back({b, directed});
    graph[static_cast<size_t>(b)].push_back({a, directed + 1});
  }
  return graph;
}

// Best path to a device.
struct Reached {
  double bandwidth = 0;
  double latency = std::numeric_limits<double>::infinity();
  int from = -1;
  int by = -1;
  bool done = false;
};

bool better(double bandwidth, double latency, const Reached& than) {
  return std::make_tuple(bandwidth, -latency) > std::make_tuple(than.bandwidth, -than.latency);
}

// Dijkstra's algorithm, ordered by "wider, then shorter".
std::vector<Reached> reach_from(int source, const Topology& topology, const Graph& graph) {
  std::vector<Reached> reached(graph.size());
  std::priority_queue<std::tuple<double, double, int>> queue;
  reached[static_cast<size_t>(source)] = {std::numeric_limits<double>::infinity(), 0, -1, -1, false};
  queue.emplace(std::numeric_limits<double>::infinity(), 0, source);
  while (!queue.empty()) {
    int at = std::get<2>(queue.top());
    queue.pop();
    Reached& here = reached[static_cast<size_t>(at)];
    if (here.done) continue;
    here.done = true;
    if (at != source && topology.devices[static_cast<size_t>(at)].kind == DeviceKind::kGpu) continue;
    for (const Edge& edge : graph[static_cast<size_t>(at)]) {
      const Link& link = topology.links[static_cast<size_t>(edge.directed_link / 2)];
      double bandwidth = std::min(here.bandwidth, link.capacity());
      double latency = here.latency + link.latency;
      Reached& there = reached[static_cast<size_t>(edge.to)];
      if (there.done || !better(bandwidth, latency, there)) continue;
      there = {bandwidth, latency, at, edge.directed_link, false};
      queue.emplace(bandwidth, -latency, edge.to);
    }
  }
  return reached;
}

}  // namespace

Routes::Routes(const Topology& topology) {
  std::vector<int> workers = workers_of(topology);
  Graph graph = graph_of(topology);
  for (const Link& link : topology.links) capacity_.push_back(link.capacity());
  for (int worker : workers) {
    const std::string& name = topology.devices[static_cast<size_t>(worker)].machine;
    auto found = std::find(topology.machines.begin(), topology.machines.end(), name);
    machines_.push_back(static_cast<int>(found - topology.machines.begin()));
  }
  for (int source : workers) {
    std::vector<Reached> reached = reach_from(source, topology, graph);
    for (int target : workers) {
      const Reached& end = reached[static_cast<size_t>(target)];
      if (!end.done)
        throw ConfigError("topology {}: no route from {} to {}.", topology.name,
                          topology.devices[static_cast<size_t>(source)].name,
                          topology.devices[static_cast<size_t>(target)].name);
      Route route{{}, end.bandwidth, end.latency};
      for (int at = target; at != source; at = reached[static_cast<size_t>(at)].from)
        route.links.push_back(reached[static_cast<size_t>(at)].by);
      routes_.push_back(std::move(route));
    }
  }
}

}  // namespace yoke::cluster
