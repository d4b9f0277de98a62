#include "yoke/cluster/topology/discover.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace yoke::cluster {
namespace {

namespace fs = std::filesystem;

// A made-up /sys.
class Sysfs {
 public:
  Sysfs() : root_(fs::temp_directory_path() / ("yoke-sysfs-" + std::to_string(::getpid()))) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~Sysfs() {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << '\n';
  }
  void gpu(const std::string& pci_path, const std::string& address, const std::string& node) const {
    std::string folder = "devices/" + pci_path;
    write(folder + "/vendor", "0x10de");
    write(folder + "/class", "0x030200");
    write(folder + "/numa_node", node);
    write(folder + "/max_link_speed", "16.0 GT/s PCIe");
    write(folder + "/max_link_width", "16");
    fs::create_directories(root_ / "bus/pci/devices");
    fs::create_directory_symlink(root_ / folder, root_ / "bus/pci/devices" / address);
  }
  const fs::path& root() const { return root_; }

 private:
  fs::path root_;
};

const Link* link_between(const Topology& topology, const std::string& a, const std::string& b) {
  auto found = std::find_if(topology.links.begin(), topology.links.end(),
                            [&](const Link& link) { return link.a == a && link.b == b; });
  return found == topology.links.end() ? nullptr : &*found;
}

TEST(Discovery, ReadsSocketsSwitchesGpusAndInterfaces) {
  Sysfs sysfs;
  sysfs.write("devices/system/node/node0/cpulist", "0-3");
  sysfs.write("devices/system/node/node1/cpulist", "4-7");
  sysfs.write("devices/system/node/node2/cpulist", "");  // memory only
  // Two below one switch of socket 1, one at a root port of socket 0.
  std::string port = "pci0000:80/0000:80:01.0/0000:81:00.0";
  for (const char* bridge : {"pci0000:80/0000:80:01.0", "pci0000:80/0000:80:01.0/0000:81:00.0",
                             "pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:00.0",
                             "pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:01.0", "pci0000:00/0000:00:01.0"})
    sysfs.write(std::string("devices/") + bridge + "/vendor", "0x1000");
  sysfs.gpu(port + "/0000:82:00.0/0000:83:00.0", "0000:83:00.0", "1");
  sysfs.gpu(port + "/0000:82:01.0/0000:84:00.0", "0000:84:00.0", "1");
  sysfs.gpu("pci0000:00/0000:00:01.0/0000:01:00.0", "0000:01:00.0", "0");
  sysfs.write("class/net/eth0/speed", "10000");
  sysfs.write("class/net/eth1/speed", "-1");
  sysfs.write("class/net/lo/operstate", "unknown");

  Topology topology = discover_topology(sysfs.root());
  EXPECT_EQ(workers_of(topology).size(), 3U);
  ASSERT_NE(link_between(topology, "cpu0", "gpu0"), nullptr);
  EXPECT_NEAR(link_between(topology, "cpu0", "gpu0")->bandwidth, 31.5e9, 0.1e9);
  ASSERT_NE(link_between(topology, "cpu1", "pcie0"), nullptr);
  EXPECT_NE(link_between(topology, "pcie0", "gpu1"), nullptr);
  EXPECT_NE(link_between(topology, "pcie0", "gpu2"), nullptr);
  EXPECT_EQ(link_between(topology, "cpu0", "cpu1")->kind, LinkKind::kQpi);
  EXPECT_EQ(link_between(topology, "cpu0", "eth0")->bandwidth, 1.25e9);
  EXPECT_EQ(link_between(topology, "cpu0", "eth1"), nullptr);
}

TEST(Discovery, AnEmptySysfsIsOneCpu) {
  Sysfs sysfs;
  Topology topology = discover_topology(sysfs.root());
  EXPECT_EQ(topology.devices.size(), 1U);
  EXPECT_EQ(topology.devices[0].name, "cpu0");
}

TEST(Discovery, ThisMachineIsAValidTopologyThatCanBeWrittenAndRead) {
  Topology here = discover_topology();
  EXPECT_NO_THROW(validate(here));
  EXPECT_EQ(parse_topology(to_string(here), "here"), here);
  // As many CPUs as the kernel has nodes with processors; one where it tells of none.
  size_t nodes = 0, cpus = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/sys/devices/system/node", ignored)) {
    std::string list;
    std::ifstream(entry.path() / "cpulist") >> list;
    if (entry.path().filename().string().rfind("node", 0) == 0 && !list.empty()) ++nodes;
  }
  for (const Device& device : here.devices) cpus += device.kind == DeviceKind::kCpu ? 1 : 0;
  EXPECT_EQ(cpus, std::max<size_t>(1, nodes));
}

}  // namespace
}  // namespace yoke::cluster
