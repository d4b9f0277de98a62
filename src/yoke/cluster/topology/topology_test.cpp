#include "yoke/cluster/topology/topology.h"

#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/cluster/topology/presets.h"

namespace yoke::cluster {
namespace {

std::string error_of(const std::string& text) {
  try {
    parse_topology(text, "c.toml");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

void expect_error(const std::string& text, const std::string& part) {
  EXPECT_NE(error_of(text).find(part), std::string::npos) << "got: " << error_of(text);
}

TEST(Topology, EveryPresetReadsBackAsItself) {
  for (const PresetInfo& info : presets()) {
    for (int machines : {1, 3}) {
      Topology topology = preset(info.name, {.machines = machines});
      EXPECT_EQ(parse_topology(to_string(topology), "c.toml"), topology) << info.name;
    }
  }
}

TEST(Topology, PresetsHaveTheDevicesOfTheBox) {
  auto workers = [](const char* name) { return workers_of(preset(name)).size(); };
  EXPECT_EQ(workers("pcie4"), 4U);
  EXPECT_EQ(workers("pcie8"), 8U);
  EXPECT_EQ(workers("dgx1"), 8U);
  EXPECT_EQ(workers("p2.16xlarge"), 16U);
  EXPECT_EQ(workers("dgx2"), 16U);
  EXPECT_EQ(workers("h100"), 8U);
  EXPECT_EQ(workers_of(preset("h100", {.machines = 4})).size(), 32U);
}

TEST(Topology, EveryGpuOfTheCubeMeshHasSixNvlinks) {
  Topology topology = preset("dgx1");
  for (int g = 0; g < 8; ++g) {
    std::string name = "gpu" + std::to_string(g);
    int links = 0;
    for (const Link& link : topology.links) {
      if (link.kind == LinkKind::kNvlink && (link.a == name || link.b == name)) links += link.width;
    }
    EXPECT_EQ(links, 6) << name;
  }
}

TEST(Topology, UnknownPresetsListTheAccepted) {
  try {
    preset("dgx3");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "preset `dgx3` is unknown. Accepted: pcie4 pcie8 dgx1 p2.16xlarge dgx2 h100.");
  }
  EXPECT_THROW(preset("dgx1", {.machines = 0}), ConfigError);
  EXPECT_THROW(preset("dgx1", {.machines = 1'000'000}), ConfigError);
}

TEST(Topology, AFileMayAddToAPreset) {
  Topology topology = parse_topology(
      "[cluster]\nname = \"Büro\"\npreset = \"pcie4\"\nmachines = 2\nnetwork_bandwidth = \"10gbit\"\n"
      "[[link]]\na = \"m0.gpu0\"\nb = \"m0.gpu1\"\nkind = \"nvlink\"\nbandwidth = \"25GB/s\"\nwidth = 2\n",
      "c.toml");
  EXPECT_EQ(topology.name, "Büro");
  EXPECT_EQ(topology.machines, (std::vector<std::string>{"m0", "m1"}));
  EXPECT_EQ(topology.links.back().capacity(), 50e9);
  EXPECT_EQ(topology.links.back().latency, 1e-6);
  EXPECT_EQ(topology.links[topology.links.size() - 2].bandwidth, 1.25e9);
}

TEST(Topology, OneMachineNeedsNoName) {
  Topology topology = parse_topology(
      "[[device]]\nname = \"a\"\n[[device]]\nname = \"b\"\n[[link]]\na = \"a\"\nb = \"b\"\nbandwidth = 1e9\n",
      "c.toml");
  EXPECT_EQ(topology.devices[1], (Device{"b", "m0", DeviceKind::kGpu}));
  EXPECT_EQ(topology.links[0].kind, LinkKind::kPcie);
}

TEST(Topology, DevicesMayDifferInSpeedAndMemory) {
  Topology topology = parse_topology(
      "[[device]]\nname = \"a\"\nspeed = 0.5\nmemory = \"12GB\"\n[[device]]\nname = \"b\"\nspeed = 2\n",
      "c.toml");
  EXPECT_EQ(topology.devices[0].speed, 0.5);
  EXPECT_EQ(topology.devices[0].memory, 12e9);
  EXPECT_EQ(topology.devices[1].speed, 2);
  EXPECT_EQ(topology.devices[1].memory, 0);
  EXPECT_EQ(parse_topology(to_string(topology), "again.toml"), topology);
  for (const char* line :
       {"speed = 0", "speed = -1", "speed = \"fast\"", "speed = nan", "memory = -1", "memory = \"lots\""})
    EXPECT_THROW(parse_topology(std::string("[[device]]\nname = \"a\"\n") + line + "\n", "c.toml"),
                 ConfigError)
        << line;
}

TEST(Topology, MistakesInAFileNameThePlace) {
  expect_error("[[device]\n", "c.toml:1: not valid TOML");
  expect_error("[[devices]]\nname = \"a\"\n", "c.toml:1: unknown section `devices`");
  expect_error("[cluster]\nprest = \"dgx1\"\n",
               "c.toml:2: unknown key `cluster.prest`. Did you mean `preset`?");
  expect_error("[cluster]\npreset = \"dgx9\"\n", "c.toml:2: preset `dgx9` is unknown. Accepted: pcie4");
  expect_error("[cluster]\nmachines = 3\n", "c.toml:2: cluster.machines requires `preset`");
  expect_error("[cluster]\npreset = \"dgx1\"\nmachines = 0\n",
               "c.toml:3: cluster.machines: expected an integer");
  expect_error("[[device]]\nkind = \"gpu\"\n", "c.toml:1: [[device]] needs `name`");
  expect_error("[[device]]\nname = \"a\"\nkind = \"tpu\"\n",
               "c.toml:3: device kind `tpu` is unknown. Accepted: gpu");
  expect_error("[device]\nname = \"a\"\n", "c.toml:1: write [[device]]");
  expect_error("device = [1]\n", "c.toml:1: write [[device]]");
  expect_error("cluster = 1\n", "c.toml:1: write [cluster]");
  std::string two = "[[device]]\nname = \"a\"\n[[device]]\nname = \"b\"\n";
  expect_error(two + "[[link]]\na = \"a\"\nb = \"b\"\nbandwidth = \"fast\"\n", "c.toml:8: link.bandwidth");
  expect_error(two + "[[link]]\na = \"a\"\nb = \"b\"\n", "bandwidth 0. It must be above 0");
  expect_error(two + "[[link]]\na = \"a\"\nb = \"bb\"\nbandwidth = 1\n", "no device is named `bb`");
  expect_error(two + "[[link]]\na = \"a\"\nb = \"a\"\nbandwidth = 1\n", "cannot be linked to itself");
  expect_error(two + "[[link]]\na = \"a\"\nb = \"b\"\nbandwidth = 1\nlatency = -1\n", "latency -1");
  expect_error(two + "[[link]]\na = \"a\"\nb = \"b\"\nbandwidth = 1\nwidth = 5000\n", "width 5000");
  expect_error(two + "[[link]]\na = \"a\"\nb = \"b\"\nbandwidth = 1\nkind = \"wire\"\n",
               "c.toml:9: link kind `wire`");
  expect_error(two + "[[device]]\nname = \"a\"\n", "two devices are named `a`");
  expect_error("[[machine]]\nname = \"x\"\n[[machine]]\nname = \"x\"\n", "two machines have the same name");
  expect_error("[[machine]]\nname = \"x\"\n[[device]]\nname = \"a\"\nmachine = \"y\"\n",
               "machine `y`, which does not exist");
  expect_error("[[device]]\nname = \"s\"\nkind = \"switch\"\n", "no device of kind gpu or cpu");
  expect_error("", "no device of kind gpu or cpu");
  expect_error("[[device]]\nname = 3\n", "c.toml:2: device.name: expected a quoted string");
}

}  // namespace
}  // namespace yoke::cluster
