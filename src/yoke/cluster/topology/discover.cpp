#include "yoke/cluster/topology/discover.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <optional>

#include "yoke/base/text.h"

namespace yoke::cluster {
namespace {

namespace fs = std::filesystem;

constexpr double kLinkDelay = 1e-6;  // seconds
// sysfs has no speed for links between sockets: assume one QPI or UPI link.
constexpr double kBetweenSockets = 10e9;
constexpr const char* kNvidia = "0x10de";
constexpr int kMostNodes = 1024;

// The first line of a small file; empty if unreadable.
std::string line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return trim(line);
}

std::optional<double> number_of(const std::string& text) {
  double value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  return value;
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    found.push_back(at->path());
  std::sort(found.begin(), found.end());
  return found;
}

// "16.0 GT/s PCIe" and width "16" in bytes per second, line coding subtracted.
double pcie_bandwidth(const fs::path& device) {
  auto rate = number_of(line_of(device / "max_link_speed"));
  auto lanes = number_of(line_of(device / "max_link_width"));
  if (!rate || !lanes || *rate <= 0 || *lanes <= 0 || *lanes > 64) return 12e9;
  double code = *rate <= 5 ? 8.0 / 10 : 128.0 / 130;
  return *rate * 1e9 * *lanes * code / 8;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 && name[0] != 0 ? name : "m0";
}

class Discovery {
 public:
  explicit Discovery(fs::path sysfs) : sysfs_(std::move(sysfs)) {
    out_.name = host_name();
    out_.machines = {out_.name};
  }

  Topology run() {
    add_cpus();
    add_gpus();
    add_nics();
    validate(out_);
    return std::move(out_);
  }

 private:
  void add(const std::string& name, DeviceKind kind) { out_.devices.push_back({name, out_.name, kind}); }

  void add_cpus() {
    for (int node = 0; node < kMostNodes; ++node) {
      fs::path folder = sysfs_ / "devices/system/node" / ("node" + std::to_string(node));
      // Skip NUMA nodes without CPUs.
      if (!line_of(folder / "cpulist").empty()) cpus_.push_back(node);
    }
    if (cpus_.empty()) cpus_.push_back(0);
    for (int node : cpus_) add(cpu_name(node), DeviceKind::kCpu);
    for (size_t i = 0; i < cpus_.size(); ++i) {
      for (size_t j = i + 1; j < cpus_.size(); ++j)
        link(cpu_name(cpus_[i]), cpu_name(cpus_[j]), LinkKind::kQpi, kBetweenSockets);
    }
  }

  static std::string cpu_name(int node) { return "cpu" + std::to_string(node); }

  void link(const std::string& a, const std::string& b, LinkKind kind, double bandwidth) {
    out_.links.push_back({a, b, kind, bandwidth, kLinkDelay, 1});
  }

  // The CPU a device is attached to; the first if the kernel does not say.
  std::string cpu_of(const fs::path& device) const {
    auto node = number_of(line_of(device / "numa_node"));
    bool known = node && std::find(cpus_.begin(), cpus_.end(), static_cast<int>(*node)) != cpus_.end();
    return cpu_name(known ? static_cast<int>(*node) : cpus_[0]);
  }

  void add_gpus() {
    int count = 0;
    for (const fs::path& device : entries(sysfs_ / "bus/pci/devices")) {
      // Class 03: display; 0302: without a screen.
      if (line_of(device / "vendor") != kNvidia || line_of(device / "class").rfind("0x03", 0) != 0) continue;
      std::string name = "gpu" + std::to_string(count++);
      add(name, DeviceKind::kGpu);
      link(parent_of(device), name, LinkKind::kPcie, pcie_bandwidth(device));
    }
  }

  // …/pci0000:00/ROOT PORT/SWITCH UPSTREAM PORT/DOWNSTREAM PORT/DEVICE: devices below one upstream port share
  // a switch.
  std::string parent_of(const fs::path& device) {
    std::error_code error;
    fs::path real = fs::canonical(device, error);
    std::vector<fs::path> bridges;
    for (fs::path at = real.parent_path(); !error && fs::exists(at / "vendor"); at = at.parent_path())
      bridges.push_back(at);
    if (bridges.size() < 3) return cpu_of(device);
    const fs::path& upper = bridges[bridges.size() - 2];
    auto [found, is_new] = switches_.try_emplace(upper.string(), "pcie" + std::to_string(switches_.size()));
    if (is_new) {
      add(found->second, DeviceKind::kSwitch);
      link(cpu_of(device), found->second, LinkKind::kPcie, pcie_bandwidth(upper));
    }
    return found->second;
  }

  void add_nics() {
    for (const fs::path& interface : entries(sysfs_ / "class/net")) {
      auto megabits = number_of(line_of(interface / "speed"));
      if (!megabits || *megabits <= 0 || line_of(interface / "operstate") == "down") continue;
      std::string name = interface.filename().string();
      add(name, DeviceKind::kNic);
      link(cpu_of(interface / "device"), name, LinkKind::kNetwork, *megabits * 125e3);
    }
  }

  fs::path sysfs_;
  Topology out_;
  std::vector<int> cpus_;
  std::map<std::string, std::string> switches_;
};

}  // namespace

Topology discover_topology(const fs::path& sysfs) {
  return Discovery(sysfs).run();
}

}  // namespace yoke::cluster
