#include "cli/lab_topology.h"

#include <fmt/core.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/base/units.h"
#include "yoke/cluster/topology/presets.h"
#include "yoke/report/svg_chart.h"
#include "yoke/report/topology_svg.h"
#include "yoke/sim/collectives_topology.h"

namespace yoke::cli {

const std::vector<LabOption> kTopologyOptions = {
    {"--presets", "pcie4,pcie8,dgx1,dgx2,h100", "pcie4,dgx1", "machines to draw"},
    {"--file", "", "", "draw this cluster.toml too"},
    {"--bytes", "64MB", "64MB", "all-reduce whose time is predicted"},
};

namespace {

using cluster::DeviceKind;

// NVLink switches are below the GPUs; PCIe switches, with their network interfaces, between them and the
// CPUs.
int layer_of(const cluster::Topology& topology, const cluster::Device& device) {
  if (device.kind == DeviceKind::kCpu) return 0;
  if (device.kind == DeviceKind::kNic) return 1;
  if (device.kind == DeviceKind::kGpu) return 2;
  const bool fabric =
      std::any_of(topology.links.begin(), topology.links.end(), [&](const cluster::Link& link) {
        return link.kind == cluster::LinkKind::kNvlink && (link.a == device.name || link.b == device.name);
      });
  return fabric ? 4 : device.machine.empty() ? 5 : 1;
}

// Indices of the devices; a network interface stands behind what it is linked to.
std::vector<size_t> order_of(const cluster::Topology& topology) {
  auto index = [&](const std::string& name) {
    auto found = std::find_if(topology.devices.begin(), topology.devices.end(),
                              [&](const cluster::Device& device) { return device.name == name; });
    return static_cast<double>(found - topology.devices.begin());
  };
  std::vector<std::pair<double, size_t>> keys;
  for (size_t i = 0; i < topology.devices.size(); ++i) {
    double key = static_cast<double>(i);
    for (const cluster::Link& link : topology.links)
      if (topology.devices[i].kind == DeviceKind::kNic && link.b == topology.devices[i].name)
        key = index(link.a) + 0.5;
    keys.emplace_back(key, i);
  }
  std::sort(keys.begin(), keys.end());
  std::vector<size_t> order;
  for (const auto& [key, device] : keys) order.push_back(device);
  return order;
}

report::TopologyPicture picture_of(const cluster::Topology& topology) {
  report::TopologyPicture picture;
  picture.label = "Devices and links of " + topology.name;
  for (size_t i : order_of(topology)) {
    const cluster::Device& device = topology.devices[i];
    picture.nodes.push_back({device.name, layer_of(topology, device), to_string(device.kind)});
  }
  auto place = [&](const std::string& name) {
    auto found = std::find_if(picture.nodes.begin(), picture.nodes.end(),
                              [&](const auto& node) { return node.name == name; });
    return static_cast<int>(found - picture.nodes.begin());
  };
  for (const cluster::Link& link : topology.links)
    picture.links.push_back(
        {place(link.a), place(link.b), to_string(link.kind),
         fmt::format("{} – {}: {} x {}/s", link.a, link.b, link.width, format_bytes(link.bandwidth)),
         link.width});
  return picture;
}

class TopologyLab {
 public:
  explicit TopologyLab(Lab& lab) : lab_(lab), bytes_(lab.values.sizes("--bytes").front()) {
    for (const std::string& name : lab.values.words("--presets"))
      topologies_.push_back(cluster::preset(name));
    const std::string& file = lab.values.text("--file");
    if (!file.empty()) topologies_.push_back(cluster::read_topology(file));
  }

  void run() {
    lab_.page.title = "Machines and their rings";
    lab_.page.about =
        "The presets of yoke topo, and the largest set of rings that share no link. Thicker lines: more "
        "parallel links.";
    lab_.expect(topologies_.size());
    report::LabTable table{{"machine", "devices", "rings", "through each device",
                            "all-reduce of " + format_bytes(double(bytes_)), "fastest"},
                           {}};
    for (const cluster::Topology& topology : topologies_)
      lab_.part(topology.name, [&] { draw(topology, table); });
    table.notes = {
        "Through each device: bytes per second that all rings carry through one device. With R rings of "
        "bandwidth B "
        "an all-reduce of S bytes takes about 2(N-1)/N x S/(R B)."};
    lab_.page.section("Side by side");
    lab_.show(table);
  }

 private:
  void draw(const cluster::Topology& topology, report::LabTable& table) {
    const sim::TopologyPricer pricer(topology);
    const cluster::RingSet& rings = pricer.rings();
    const std::vector<int> workers = cluster::workers_of(topology);
    std::string fastest;
    double best = 0;
    for (plan::Algorithm one : pricer.algorithms(plan::Collective::kAllReduce)) {
      const double seconds = pricer.seconds(plan::Collective::kAllReduce, one, bytes_);
      if (best == 0 || seconds < best) {
        best = seconds;
        fastest = plan::to_string(one);
      }
    }
    lab_.page.section(topology.name);
    lab_.page.add({"links_" + topology.name, "Devices and links", report::topology_svg(picture_of(topology)),
                   "",
                   /*wide=*/workers.size() > 8});
    std::vector<std::string> names;
    for (int worker : workers) names.push_back(topology.devices[static_cast<size_t>(worker)].name);
    if (!rings.rings.empty())
      lab_.page.add({"rings_" + topology.name,
                     fmt::format("{} ring{}{}", rings.rings.size(), rings.rings.size() == 1 ? "" : "s",
                                 rings.both_ways ? ", each in both directions" : ""),
                     report::rings_svg("Rings of " + topology.name, names, rings.rings)});
    const double ring_seconds =
        workers.size() > 1 ? pricer.seconds(plan::Collective::kAllReduce, plan::Algorithm::kRing, bytes_) : 0;
    table.rows.push_back({topology.name, fmt::format("{}", workers.size()),
                          fmt::format("{}", rings.rings.size()), format_bytes(rings.bandwidth) + "/s",
                          format_duration(best), fastest});
    lab_.result({{"machine", topology.name},
                 {"devices", workers.size()},
                 {"rings", rings.rings.size()},
                 {"ring_bandwidth", rings.bandwidth},
                 {"all_reduce_seconds", best},
                 {"all_reduce_algorithm", fastest},
                 {"ring_seconds", ring_seconds}});
  }

  Lab& lab_;
  const int64_t bytes_;
  std::vector<cluster::Topology> topologies_;
};

}  // namespace

void run_lab_topology(Lab& lab) {
  TopologyLab(lab).run();
}

}  // namespace yoke::cli
