// Bandwidths are achievable ones, rounded: PCIe 3 x16 12 GB/s (of 15.8), PCIe 4 24, PCIe 5 50; QPI 10; one
// NVLink of V100 and H100 25 GB/s in each direction.
#include "yoke/cluster/topology/presets.h"

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::cluster {
namespace {

constexpr double kGB = 1e9, kGbit = 125e6, kMicrosecond = 1e-6;
constexpr double kNvlink = 25 * kGB, kQpi = 10 * kGB;
constexpr int kMostMachines = 4096;

// Adds the devices and links of one machine; names start with `prefix`.
class Box {
 public:
  Box(Topology& out, std::string machine, std::string prefix)
      : out_(out), machine_(std::move(machine)), prefix_(std::move(prefix)) {
    out_.machines.push_back(machine_);
  }

  std::string add(DeviceKind kind, const char* word, int number) {
    std::string name = fmt::format("{}{}{}", prefix_, word, number);
    out_.devices.push_back({name, machine_, kind});
    return name;
  }
  std::string name(const char* word, int number) const {
    return fmt::format("{}{}{}", prefix_, word, number);
  }

  void link(const std::string& a, const std::string& b, LinkKind kind, double bandwidth, int width = 1) {
    out_.links.push_back({a, b, kind, bandwidth, kMicrosecond, width});
  }

  void add_gpus(int count) {
    for (int i = 0; i < count; ++i) add(DeviceKind::kGpu, "gpu", i);
  }

  // Two sockets, `switches` PCIe switches divided among them, GPUs and network interfaces below those.
  void add_pcie(int gpus, int switches, int nics, double pcie) {
    for (int s = 0; s < 2; ++s) add(DeviceKind::kCpu, "cpu", s);
    link(name("cpu", 0), name("cpu", 1), LinkKind::kQpi, kQpi);
    for (int w = 0; w < switches; ++w)
      link(name("cpu", w * 2 / switches), add(DeviceKind::kSwitch, "pcie", w), LinkKind::kPcie, pcie);
    for (int g = 0; g < gpus; ++g)
      link(name("pcie", g * switches / gpus), name("gpu", g), LinkKind::kPcie, pcie);
    for (int n = 0; n < nics; ++n)
      link(name("pcie", n * switches / nics), add(DeviceKind::kNic, "nic", n), LinkKind::kPcie, pcie);
  }

  void add_nvswitch(int gpus, int links) {
    std::string fabric = add(DeviceKind::kSwitch, "nvswitch", 0);
    for (int g = 0; g < gpus; ++g) link(name("gpu", g), fabric, LinkKind::kNvlink, kNvlink, links);
  }

 private:
  Topology& out_;
  std::string machine_;
  std::string prefix_;
};

void pcie_box(Box& box, int gpus) {
  box.add_gpus(gpus);
  box.add_pcie(gpus, 2, 1, 12 * kGB);
}

// The hybrid cube mesh of eight V100: two fully connected groups of four, and each GPU linked to its twin in
// the other. Six links per GPU; the second number of a pair is the number of links.
void dgx1(Box& box) {
  constexpr struct {
    int a, b, width;
  } kMesh[] = {{0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1}, {1, 5, 2}, {2, 3, 2},
               {2, 6, 1}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1}, {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2}};
  box.add_gpus(8);
  box.add_pcie(8, 4, 4, 12 * kGB);
  for (const auto& pair : kMesh)
    box.link(box.name("gpu", pair.a), box.name("gpu", pair.b), LinkKind::kNvlink, kNvlink, pair.width);
}

// Eight K80 boards, each with two GPUs behind a switch of its own; four boards to a socket.
void p2(Box& box) {
  box.add_gpus(16);
  box.add_pcie(16, 8, 1, 12 * kGB);
}

void dgx2(Box& box) {
  box.add_gpus(16);
  box.add_pcie(16, 8, 8, 12 * kGB);
  box.add_nvswitch(16, 6);
}

void h100(Box& box) {
  box.add_gpus(8);
  box.add_pcie(8, 8, 8, 50 * kGB);
  box.add_nvswitch(8, 18);
}

struct Entry {
  const char* name;
  const char* what;
  void (*build)(Box&);
  double network;  // bytes per second of one network interface
};

constexpr Entry kPresets[] = {
    {"pcie4", "4 GPUs below two PCIe switches, two sockets", [](Box& box) { pcie_box(box, 4); }, 100 * kGbit},
    {"pcie8", "8 GPUs below two PCIe switches, two sockets", [](Box& box) { pcie_box(box, 8); }, 100 * kGbit},
    {"dgx1", "8 V100 in a hybrid cube mesh of NVLinks", dgx1, 100 * kGbit},
    {"p2.16xlarge", "16 K80 GPUs on eight boards, two sockets", p2, 25 * kGbit},
    {"dgx2", "16 V100 behind NVSwitch", dgx2, 100 * kGbit},
    {"h100", "8 H100 behind NVSwitch", h100, 400 * kGbit},
};

const Entry& find(const std::string& name) {
  std::vector<std::string> names;
  for (const Entry& entry : kPresets) {
    if (name == entry.name) return entry;
    names.emplace_back(entry.name);
  }
  throw ConfigError("preset `{}` is unknown. Accepted: {}.", name, join(names, " "));
}

// Every network interface is linked to one switch that is never the bottleneck.
void join_by_network(Topology& topology, double bandwidth, double latency) {
  std::vector<std::string> nics;
  for (const Device& device : topology.devices) {
    if (device.kind == DeviceKind::kNic) nics.push_back(device.name);
  }
  topology.devices.push_back({"network", "", DeviceKind::kSwitch});
  for (const std::string& nic : nics)
    topology.links.push_back({nic, "network", LinkKind::kNetwork, bandwidth, latency, 1});
}

}  // namespace

Topology preset(const std::string& name, const ClusterSize& size) {
  const Entry& entry = find(name);
  if (size.machines < 1 || size.machines > kMostMachines)
    throw ConfigError("{} machines of preset {}. Accepted: 1..{}.", size.machines, name, kMostMachines);
  Topology topology;
  topology.name = size.machines == 1 ? name : fmt::format("{} x {}", size.machines, name);
  for (int m = 0; m < size.machines; ++m) {
    Box box(topology, fmt::format("m{}", m), size.machines == 1 ? "" : fmt::format("m{}.", m));
    entry.build(box);
  }
  if (size.machines > 1)
    join_by_network(topology, size.network_bandwidth > 0 ? size.network_bandwidth : entry.network,
                    size.network_latency);
  validate(topology);
  return topology;
}

std::vector<PresetInfo> presets() {
  std::vector<PresetInfo> list;
  for (const Entry& entry : kPresets) list.push_back({entry.name, entry.what});
  return list;
}

}  // namespace yoke::cluster
