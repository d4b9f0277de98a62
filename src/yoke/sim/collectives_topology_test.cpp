#include "yoke/sim/collectives_topology.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/cluster/topology/presets.h"

namespace yoke::sim {
namespace {

using plan::Algorithm;
using plan::Collective;

constexpr int64_t kGigabyte = 1'000'000'000;

TEST(TopologyPricer, TheRingsOfTheCubeMeshReachTheirBusBandwidth) {
  TopologyPricer pricer(cluster::preset("dgx1"));
  double seconds = pricer.seconds(Collective::kAllReduce, Algorithm::kRing, kGigabyte);
  // Six directed rings of 25 GB/s, 2 (N-1)/N of the data, 14 messages of one link each.
  EXPECT_NEAR(seconds, 2 * 7.0 / 8 * 1e9 / 150e9 + 14e-6, 1e-7);
}

TEST(TopologyPricer, AFlatRingOverTwoSwitchesCarriesSevenQuartersOverTheNarrowLink) {
  cluster::Topology topology = cluster::preset("pcie8");
  TopologyPricer pricer(topology);
  std::vector<double> bytes = pricer.link_bytes(Collective::kAllReduce, Algorithm::kRing, 8'000'000);
  for (size_t l = 0; l < topology.links.size(); ++l) {
    const cluster::Link& link = topology.links[l];
    bool to_switch = link.a.rfind("cpu", 0) == 0 && link.b.rfind("pcie", 0) == 0;
    if (!to_switch && link.kind != cluster::LinkKind::kQpi) continue;
    EXPECT_DOUBLE_EQ(bytes[2 * l], 8'000'000 * 7 / 4) << link.a << " " << link.b;
    EXPECT_DOUBLE_EQ(bytes[2 * l + 1], 8'000'000 * 7 / 4) << link.a << " " << link.b;
  }
}

TEST(TopologyPricer, AHierarchyWinsWhereTheNetworkIsNarrow) {
  TopologyPricer pricer(cluster::preset("h100", {.machines = 4, .network_bandwidth = 1.25e9}));
  EXPECT_EQ(pricer.machine_size(), 8);
  double hierarchical = pricer.seconds(Collective::kAllReduce, Algorithm::kHierarchical, kGigabyte);
  EXPECT_LT(hierarchical, pricer.seconds(Collective::kAllReduce, Algorithm::kTree, kGigabyte));
  EXPECT_LT(hierarchical, pricer.seconds(Collective::kAllReduce, Algorithm::kStar, kGigabyte));
  // Each of the eight interfaces carries 2 (M-1)/M of an eighth.
  EXPECT_NEAR(hierarchical, 2 * 0.75 * 1e9 / 8 / 1.25e9, 0.02);
}

TEST(TopologyPricer, OneMachineHasNoHierarchy) {
  TopologyPricer pricer(cluster::preset("dgx2"));
  auto algorithms = pricer.algorithms(Collective::kAllReduce);
  EXPECT_EQ(std::find(algorithms.begin(), algorithms.end(), Algorithm::kHierarchical), algorithms.end());
}

TEST(TopologyPricer, EveryFormHasAPriceThatGrowsWithTheData) {
  for (const char* name : {"pcie4", "dgx1"}) {
    TopologyPricer pricer(cluster::preset(name, {.machines = 2}));
    for (int i = 0; i <= static_cast<int>(Collective::kBarrier); ++i) {
      auto op = static_cast<Collective>(i);
      for (Algorithm algorithm : pricer.algorithms(op)) {
        double small = pricer.seconds(op, algorithm, 0), large = pricer.seconds(op, algorithm, 10'000'000);
        EXPECT_GT(small, 0);
        EXPECT_TRUE(op == Collective::kBarrier ? large == small : large > small) << to_string(op);
      }
    }
  }
}

TEST(TopologyPricer, TooManyDevicesAreRefused) {
  EXPECT_THROW(TopologyPricer(cluster::preset("h100", {.machines = 100})), ConfigError);
}

}  // namespace
}  // namespace yoke::sim
