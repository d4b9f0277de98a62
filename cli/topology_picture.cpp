#include "cli/topology_picture.h"

#include <fmt/core.h>

#include <algorithm>

#include "yoke/base/units.h"

namespace yoke::cli {
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

}  // namespace

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
        {place(link.a), place(link.b),
         fmt::format("{} {}/s", to_string(link.kind), format_bytes(link.bandwidth)),
         fmt::format("{} – {}: {} x {}/s", link.a, link.b, link.width, format_bytes(link.bandwidth)),
         link.width});
  return picture;
}

void add_pictures(report::LabPage& page, const cluster::Topology& topology, const cluster::RingSet& rings) {
  const std::vector<int> workers = cluster::workers_of(topology);
  page.add({"links_" + topology.name, "Devices and links", report::topology_svg(picture_of(topology)), "",
            /*wide=*/true});
  if (rings.rings.empty()) return;
  std::vector<std::string> names;
  for (int worker : workers) names.push_back(topology.devices[static_cast<size_t>(worker)].name);
  page.add({"rings_" + topology.name,
            fmt::format("{} ring{}{}", rings.rings.size(), rings.rings.size() == 1 ? "" : "s",
                        rings.both_ways ? ", each in both directions" : ""),
            report::rings_svg("Rings of " + topology.name, names, rings.rings)});
}

}  // namespace yoke::cli
