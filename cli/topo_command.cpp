#include "cli/topo_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "cli/mesh_text.h"
#include "cli/output.h"
#include "cli/topology_picture.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/base/units.h"
#include "yoke/cluster/topology/discover.h"
#include "yoke/cluster/topology/presets.h"
#include "yoke/sim/collectives_topology.h"

namespace yoke::cli {
namespace {

using cluster::Topology;
using plan::Algorithm;
using plan::Collective;

constexpr size_t kColumns = 80;
constexpr int64_t kShownBytes = 64'000'000;
constexpr Collective kAllOps[] = {
    Collective::kAllReduce, Collective::kReduce,   Collective::kReduceScatter,
    Collective::kAllGather, Collective::kAllToAll, Collective::kBroadcast,
    Collective::kGather,    Collective::kScatter,  Collective::kBarrier,
};
constexpr struct {
  Algorithm algorithm;
  const char* label;  // of its column
} kColumnsOfTable[] = {
    {Algorithm::kRing, "ring"},     {Algorithm::kTree, "tree"},     {Algorithm::kHalvingDoubling, "halving"},
    {Algorithm::kStar, "star"},     {Algorithm::kDirect, "direct"}, {Algorithm::kHierarchical, "hier."},
    {Algorithm::kExchange, "exch."}};

struct Prediction {
  Collective op;
  Algorithm algorithm;
  int64_t bytes;
  double seconds;
};

struct Wanted {
  std::vector<Collective> ops;
  std::vector<Algorithm> algorithms;
  std::vector<int64_t> sizes;
};

Topology topology_of(const TopoArguments& arguments) {
  if (!arguments.preset.empty() && !arguments.file.empty())
    throw ConfigError("--preset {} and {}: use one of them.", arguments.preset, arguments.file);
  if (arguments.preset.empty() && (arguments.machines != 1 || !arguments.network.empty()))
    throw ConfigError("--machines and --network need --preset.");
  if (!arguments.file.empty()) return cluster::read_topology(arguments.file);
  if (arguments.preset.empty()) return cluster::discover_topology();
  cluster::ClusterSize size;
  if (arguments.machines < 1 || arguments.machines > std::numeric_limits<int>::max())
    throw ConfigError("--machines {}: expected an integer of at least 1.", arguments.machines);
  size.machines = static_cast<int>(arguments.machines);
  if (!arguments.network.empty()) {
    auto rate = parse_rate(arguments.network);
    if (!rate || *rate <= 0)
      throw ConfigError("--network {}: expected a rate such as 100gbit or 12.5GB/s.", arguments.network);
    size.network_bandwidth = *rate;
  }
  return cluster::preset(arguments.preset, size);
}

Wanted wanted_of(const TopoArguments& arguments) {
  Wanted wanted;
  for (const std::string& name : arguments.ops) wanted.ops.push_back(plan::parse_collective(name));
  if (wanted.ops.empty()) wanted.ops.assign(std::begin(kAllOps), std::end(kAllOps));
  for (const std::string& name : arguments.algorithms)
    wanted.algorithms.push_back(plan::parse_algorithm(name));
  for (const std::string& text : arguments.sizes) {
    auto bytes = parse_bytes(text);
    if (!bytes) throw ConfigError("--bytes {}: expected a size such as 64K, 25MB or 1G.", text);
    wanted.sizes.push_back(*bytes);
  }
  if (wanted.sizes.empty()) wanted.sizes.push_back(kShownBytes);
  return wanted;
}

// An algorithm requested by name that does not support the operation is an error.
std::vector<Prediction> predict(const sim::TopologyPricer& pricer, const Wanted& wanted) {
  std::vector<Prediction> list;
  for (Collective op : wanted.ops) {
    std::vector<Algorithm> algorithms = wanted.algorithms.empty() ? pricer.algorithms(op) : wanted.algorithms;
    for (int64_t bytes : wanted.sizes) {
      for (Algorithm algorithm : algorithms)
        list.push_back({op, algorithm, bytes, pricer.seconds(op, algorithm, bytes)});
      if (op == Collective::kBarrier) break;
    }
  }
  return list;
}

std::string worker_name(const Topology& topology, const std::vector<int>& workers, int worker) {
  return topology.devices[static_cast<size_t>(workers[static_cast<size_t>(worker)])].name;
}

nlohmann::json document(const Topology& topology, const cluster::RingSet& rings,
                        const std::vector<Prediction>& predictions) {
  using nlohmann::json;
  std::vector<int> workers = cluster::workers_of(topology);
  json out = {{"name", topology.name},
              {"devices", workers.size()},
              {"nodes", json::array()},
              {"links", json::array()},
              {"rings", json::array()},
              {"rings_both_ways", rings.both_ways},
              {"ring_bandwidth", rings.bandwidth},
              {"predictions", json::array()}};
  for (const cluster::Device& device : topology.devices) {
    out["nodes"].push_back(
        {{"name", device.name}, {"kind", to_string(device.kind)}, {"machine", device.machine}});
  }
  for (const cluster::Link& link : topology.links) {
    out["links"].push_back({{"a", link.a},
                            {"b", link.b},
                            {"kind", to_string(link.kind)},
                            {"bandwidth", link.capacity()},
                            {"latency", link.latency},
                            {"width", link.width}});
  }
  for (const cluster::Ring& ring : rings.rings) {
    json names = json::array();
    for (int worker : ring) names.push_back(worker_name(topology, workers, worker));
    out["rings"].push_back(names);
  }
  for (const Prediction& p : predictions) {
    out["predictions"].push_back({{"op", to_string(p.op)},
                                  {"algorithm", to_string(p.algorithm)},
                                  {"bytes", p.op == Collective::kBarrier ? 0 : p.bytes},
                                  {"seconds", p.seconds}});
  }
  return out;
}

// Words after `head`, in lines of at most 80 columns, the next ones indented.
void print_wrapped(const std::string& head, const std::vector<std::string>& words) {
  std::string line = head;
  for (const std::string& word : words) {
    if (line.size() + 1 + word.size() > kColumns) {
      fmt::print("{}\n", line);
      line = std::string(head.size(), ' ');
    }
    line += " " + word;
  }
  fmt::print("{}\n", line);
}

std::string rate(double bandwidth) {
  return format_bytes(bandwidth) + "/s";
}

void print_links(const Topology& topology) {
  if (topology.links.empty()) return;
  fmt::print("\n{:<20} {:<20} {:<8} {:>6} {:>13} {:>8}\n", "link", "", "kind", "width", "bandwidth",
             "latency");
  for (const cluster::Link& link : topology.links) {
    fmt::print("{:<20.20} {:<20.20} {:<8} {:>6} {:>13} {:>8}\n", link.a, link.b, to_string(link.kind),
               link.width, rate(link.capacity()), format_duration(link.latency));
  }
}

void print_rings(const Topology& topology, const cluster::RingSet& rings) {
  if (rings.rings.empty()) return;
  std::vector<int> workers = cluster::workers_of(topology);
  fmt::print("\n{} ring{}{}, {} through each device\n", rings.rings.size(),
             rings.rings.size() == 1 ? "" : "s", rings.both_ways ? ", both ways" : "", rate(rings.bandwidth));
  for (size_t i = 0; i < rings.rings.size(); ++i) {
    std::vector<std::string> names;
    for (int worker : rings.rings[i]) names.push_back(worker_name(topology, workers, worker));
    print_wrapped(fmt::format("{:>3}:", i + 1), names);
  }
}

// At most six characters up to a quarter of an hour.
std::string milliseconds(double seconds) {
  double value = seconds * 1e3;
  return value < 1 ? fmt::format("{:.4f}", value) : fmt::format("{:.{}f}", value, value < 100 ? 2 : 0);
}

// One row per operation and size, one column per algorithm; the fastest is starred.
void print_predictions(const std::vector<Prediction>& predictions) {
  fmt::print("\n{:<14} {:>9}", "operation", "bytes");
  for (const auto& column : kColumnsOfTable) fmt::print(" {:>7}", column.label);
  fmt::print("\n");
  for (size_t begin = 0, end = 0; begin < predictions.size(); begin = end) {
    const Prediction& first = predictions[begin];
    double best = std::numeric_limits<double>::infinity();
    for (end = begin;
         end < predictions.size() && predictions[end].op == first.op && predictions[end].bytes == first.bytes;
         ++end)
      best = std::min(best, predictions[end].seconds);
    fmt::print("{:<14} {:>9}", to_string(first.op),
               first.op == Collective::kBarrier ? "" : format_bytes(static_cast<double>(first.bytes)));
    for (const auto& column : kColumnsOfTable) {
      auto found = std::find_if(predictions.begin() + static_cast<ptrdiff_t>(begin),
                                predictions.begin() + static_cast<ptrdiff_t>(end),
                                [&](const Prediction& p) { return p.algorithm == column.algorithm; });
      bool there = found != predictions.begin() + static_cast<ptrdiff_t>(end);
      fmt::print(" {:>7}", there ? milliseconds(found->seconds) + (found->seconds == best ? "*" : "") : "-");
    }
    fmt::print("\n");
  }
  fmt::print("milliseconds; * is the fastest\n");
}

report::LabPage figures(const CommandLine& line, const Topology& topology, const cluster::RingSet& rings,
                        const std::vector<Prediction>& predictions) {
  report::LabPage page;
  page.title = topology.name;
  page.command = line.typed;
  page.about = fmt::format("{} devices, {} through each by all rings. Thicker lines: more parallel links.",
                           cluster::workers_of(topology).size(), rate(rings.bandwidth));
  add_pictures(page, topology, rings);
  report::LabTable table{{"operation", "algorithm", "bytes", "predicted"}, {}};
  if (cluster::workers_of(topology).size() > 1)
    for (const Prediction& p : predictions)
      table.rows.push_back({to_string(p.op), to_string(p.algorithm),
                            p.op == Collective::kBarrier ? "" : format_bytes(static_cast<double>(p.bytes)),
                            format_duration(p.seconds)});
  page.add(table);
  return page;
}

void print_head(const Topology& topology) {
  size_t machines = topology.machines.size(), workers = cluster::workers_of(topology).size();
  fmt::print("{}: {} machine{}, {} device{}, {} links\n", topology.name, machines, machines == 1 ? "" : "s",
             workers, workers == 1 ? "" : "s", topology.links.size());
}

}  // namespace

int show_topology(const CommandLine& line) {
  if (!line.topo.mesh.empty()) {
    if (line.figures.wanted())
      throw ConfigError("--mesh {}: it has no figure. Leave out --svg and --html.", line.topo.mesh);
    const TopoArguments& other = line.topo;
    if (!other.file.empty() || !other.preset.empty() || other.machines != 1 || !other.network.empty())
      throw ConfigError("--mesh {} shows ranks, not links: use it alone.", line.topo.mesh);
    const parallel::Mesh mesh = parallel::parse_mesh(line.topo.mesh);
    if (line.json)
      print_json({{"mesh", to_json(mesh)}});
    else
      print_mesh(mesh);
    return 0;
  }
  check_figures(line.figures);
  Topology topology = topology_of(line.topo);
  sim::TopologyPricer pricer(topology);
  std::vector<Prediction> predictions = predict(pricer, wanted_of(line.topo));
  if (line.figures.wanted())
    write_figures(line.figures, figures(line, topology, pricer.rings(), predictions));
  if (line.json) {
    print_json(document(topology, pricer.rings(), predictions));
    return 0;
  }
  print_head(topology);
  print_links(topology);
  print_rings(topology, pricer.rings());
  if (cluster::workers_of(topology).size() > 1) print_predictions(predictions);
  return 0;
}

int predict_topology(const CommandLine& line) {
  Wanted wanted = wanted_of(line.topo);
  Topology topology = topology_of(line.topo);
  sim::TopologyPricer pricer(topology);
  std::vector<Prediction> predictions = predict(pricer, wanted);
  if (line.json) {
    print_json(document(topology, pricer.rings(), predictions));
    return 0;
  }
  print_head(topology);
  print_rings(topology, pricer.rings());
  print_predictions(predictions);
  return 0;
}

}  // namespace yoke::cli
