#include "yoke/cluster/topology/rings.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/cluster/topology/presets.h"

namespace yoke::cluster {
namespace {

RingSet rings_of(const Topology& topology) {
  return best_rings(topology, Routes(topology));
}

bool visits_all(const Ring& ring, int workers) {
  Ring sorted = ring;
  std::sort(sorted.begin(), sorted.end());
  for (int w = 0; w < workers; ++w) {
    if (static_cast<int>(sorted.size()) != workers || sorted[static_cast<size_t>(w)] != w) return false;
  }
  return true;
}

// The same ring however it is written: begins with 0, then the smaller neighbour.
Ring canonical(Ring ring) {
  std::rotate(ring.begin(), std::find(ring.begin(), ring.end(), 0), ring.end());
  if (ring[1] > ring.back()) std::reverse(ring.begin() + 1, ring.end());
  return ring;
}

TEST(Rings, TheCubeMeshGivesTheThreeKnownRings) {
  RingSet set = rings_of(preset("dgx1"));
  std::vector<Ring> rings;
  for (const Ring& ring : set.rings) rings.push_back(canonical(ring));
  std::sort(rings.begin(), rings.end());
  // Twice over the double links, once over the single ones.
  EXPECT_EQ(rings, (std::vector<Ring>{
                       {0, 1, 3, 7, 5, 4, 6, 2}, {0, 3, 2, 1, 5, 6, 7, 4}, {0, 3, 2, 1, 5, 6, 7, 4}}));
  EXPECT_TRUE(set.both_ways);
  EXPECT_TRUE(set.exact);
  EXPECT_DOUBLE_EQ(set.bandwidth, 6 * 25e9);
}

TEST(Rings, BehindASwitchOneRingUsesAllOfEveryLink) {
  RingSet h100 = rings_of(preset("h100"));
  EXPECT_EQ(h100.rings.size(), 1U);
  EXPECT_DOUBLE_EQ(h100.bandwidth, 450e9);
  EXPECT_TRUE(h100.exact);
  RingSet dgx2 = rings_of(preset("dgx2"));
  EXPECT_DOUBLE_EQ(dgx2.bandwidth, 150e9);
  EXPECT_TRUE(visits_all(dgx2.rings[0], 16));
  EXPECT_TRUE(dgx2.exact);
}

TEST(Rings, CrossTheSocketsOnce) {
  for (const char* name : {"pcie4", "pcie8", "p2.16xlarge"}) {
    RingSet set = rings_of(preset(name));
    EXPECT_DOUBLE_EQ(set.bandwidth, 10e9) << name;
    EXPECT_TRUE(set.exact);
  }
}

TEST(Rings, AClusterUsesItsNetworkInterfaces) {
  Topology one = preset("pcie8", {.machines = 4, .network_bandwidth = 1.25e9});
  RingSet set = rings_of(one);
  EXPECT_TRUE(visits_all(set.rings[0], 32));
  EXPECT_DOUBLE_EQ(set.bandwidth, 1.25e9);
  // Four interfaces at every box, one ring through each.
  RingSet four = rings_of(preset("dgx1", {.machines = 2, .network_bandwidth = 1.25e9}));
  EXPECT_GT(four.rings.size(), 1U);
  for (const Ring& ring : four.rings) EXPECT_TRUE(visits_all(ring, 16));
  EXPECT_GE(four.bandwidth, 2 * 1.25e9);
}

TEST(Rings, AMixOfSpeedsTakesTheWidestSum) {
  // A slow ring of three, and a fast link that closes no ring of its own.
  Topology topology{"t", {"m"}, {}, {}};
  for (const char* name : {"a", "b", "c"}) topology.devices.push_back({name, "m", DeviceKind::kGpu});
  topology.links = {{"a", "b", LinkKind::kNvlink, 50e9, 0, 1},
                    {"b", "c", LinkKind::kNvlink, 10e9, 0, 1},
                    {"c", "a", LinkKind::kNvlink, 10e9, 0, 1}};
  RingSet set = rings_of(topology);
  EXPECT_EQ(set.rings.size(), 1U);
  EXPECT_DOUBLE_EQ(set.bandwidth, 20e9);
}

TEST(Rings, OneOrTwoDevices) {
  Topology topology{"t", {"m"}, {{"a", "m", DeviceKind::kGpu}}, {}};
  EXPECT_TRUE(rings_of(topology).rings.empty());
  topology.devices.push_back({"b", "m", DeviceKind::kGpu});
  topology.links.push_back({"a", "b", LinkKind::kNvlink, 25e9, 0, 2});
  RingSet set = rings_of(topology);
  EXPECT_EQ(set.rings.size(), 2U);
  EXPECT_DOUBLE_EQ(set.bandwidth, 50e9);
}

TEST(Rings, LargeClustersTakeNoTimeToSpeakOf) {
  RingSet set = rings_of(preset("h100", {.machines = 16}));
  EXPECT_TRUE(visits_all(set.rings[0], 128));
  EXPECT_GT(set.bandwidth, 50e9);
}

TEST(Routes, GpusDoNotPassMessagesOn) {
  Routes routes(preset("dgx1"));
  EXPECT_EQ(routes.links(0, 3).size(), 1U);
  EXPECT_DOUBLE_EQ(routes.bandwidth(0, 3), 50e9);
  // No link joins 0 and 5: over PCIe and between the sockets.
  EXPECT_EQ(routes.links(0, 5).size(), 5U);
  EXPECT_DOUBLE_EQ(routes.bandwidth(0, 5), 10e9);
  EXPECT_DOUBLE_EQ(routes.latency(0, 5), 5e-6);
}

TEST(Routes, WorkersThatAreNotConnectedAreNamed) {
  Topology topology{"t", {"m"}, {{"a", "m", DeviceKind::kGpu}, {"b", "m", DeviceKind::kGpu}}, {}};
  try {
    Routes routes(topology);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "topology t: no route from a to b.");
  }
}

}  // namespace
}  // namespace yoke::cluster
