#include "yoke/plan/partition/partition.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <set>

#include "yoke/base/error.h"
#include "yoke/base/random.h"

namespace yoke::plan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Profile random_graph(Random& random, size_t nodes, uint64_t heaviest) {
  Profile profile;
  for (size_t i = 0; i < nodes; ++i)
    profile.layers.push_back({"n" + std::to_string(i), 0, static_cast<double>(1 + random.below(heaviest)),
                              static_cast<double>(random.below(20)), 4});
  for (size_t to = 1; to < nodes; ++to)
    for (uint64_t k = 0, count = 1 + random.below(3); k < count; ++k)
      profile.edges.push_back({static_cast<int>(random.below(to)), static_cast<int>(to)});
  return profile;
}

// Written anew from the definition: an output crosses once for every other machine that reads it.
double crossing(const Profile& profile, const std::vector<int>& part_of) {
  std::set<std::pair<int, int>> travels;  // who, where to
  for (const Edge& edge : profile.edges) {
    int to = part_of[static_cast<size_t>(edge.to)];
    if (part_of[static_cast<size_t>(edge.from)] != to) travels.insert({edge.from, to});
  }
  double bytes = 0;
  for (auto [from, to] : travels) bytes += profile.layers[static_cast<size_t>(from)].activation_bytes;
  return bytes;
}

double heaviest_part(const Profile& profile, const std::vector<int>& part_of, int parts) {
  std::vector<double> weights(static_cast<size_t>(parts));
  for (size_t i = 0; i < part_of.size(); ++i)
    weights[static_cast<size_t>(part_of[i])] += profile.layers[i].seconds();
  return *std::max_element(weights.begin(), weights.end());
}

double by_trying_everything(const Profile& profile, int parts, double limit) {
  std::vector<int> part_of(profile.layers.size());
  double best = kInfinity;
  for (;;) {
    if (heaviest_part(profile, part_of, parts) <= limit) best = std::min(best, crossing(profile, part_of));
    size_t digit = 0;
    while (digit < part_of.size() && ++part_of[digit] == parts) part_of[digit++] = 0;
    if (digit == part_of.size()) return best;
  }
}

double total_of(const Profile& profile) {
  double total = 0;
  for (const Layer& layer : profile.layers) total += layer.seconds();
  return total;
}

// A square of nodes that each feed the right and the lower neighbour.
Profile grid(int side) {
  Profile profile;
  for (int i = 0; i < side * side; ++i) {
    profile.layers.push_back({"n", 0, 1, 1, 0});
    if (i % side + 1 < side) profile.edges.push_back({i, i + 1});
    if (i + side < side * side) profile.edges.push_back({i, i + side});
  }
  return profile;
}

TEST(Partition, EqualsTryingEverythingOnSmallGraphs) {
  Random random(11);
  int found = 0;
  for (int i = 0; i < 600; ++i) {
    int parts = 2 + static_cast<int>(random.below(3));
    Profile profile = random_graph(random, 2 + random.below(parts == 2 ? 8 : 6), 1 + random.below(4));
    double balance = 1 + static_cast<double>(random.below(8)) / 10;
    double best = by_trying_everything(profile, parts, balance * total_of(profile) / parts * (1 + 1e-9));
    PartitionOptions options{.parts = parts, .balance = balance};
    if (best == kInfinity) {
      EXPECT_THROW(make_partition(graph_of(profile), options), ConfigError);
      continue;
    }
    Partition partition = make_partition(graph_of(profile), options);
    ++found;
    EXPECT_TRUE(partition.optimal);
    EXPECT_DOUBLE_EQ(partition.cut_bytes, best) << "case " << i;
    EXPECT_DOUBLE_EQ(crossing(profile, partition.part_of), best);
    EXPECT_LE(heaviest_part(profile, partition.part_of, parts),
              balance * total_of(profile) / parts * (1 + 1e-8));
  }
  EXPECT_GT(found, 300);
}

TEST(Partition, TheHeuristicAloneIsNearTheOptimum) {
  Random random(5);
  double found = 0, best = 0;
  for (int i = 0; i < 60; ++i) {
    Profile profile = random_graph(random, 9, 2);
    Partition exact = make_partition(graph_of(profile), {.parts = 3, .balance = 1.3});
    Partition quick = make_partition(graph_of(profile), {.parts = 3, .balance = 1.3, .exact_steps = 0});
    EXPECT_GE(quick.cut_bytes, exact.cut_bytes);
    found += quick.cut_bytes;
    best += exact.cut_bytes;
  }
  EXPECT_LE(found, 1.05 * best);
}

TEST(Partition, LargeGridsAreCutNearlyStraight) {
  Profile profile = grid(32);
  // Four squares of 16 x 16: two lines of 32 nodes each, and the node in the middle reads from both sides.
  Partition partition = make_partition(graph_of(profile), {.parts = 4, .balance = 1.03, .restarts = 12});
  EXPECT_LE(partition.cut_bytes, 1.3 * 64);
  EXPECT_LE(*std::max_element(partition.weights.begin(), partition.weights.end()), 1.03 * 256 + 1e-6);
}

TEST(Partition, IsTheSameForTheSameSeed) {
  Random random(3);
  PartitionGraph graph = graph_of(random_graph(random, 300, 5));
  Partition a = make_partition(graph, {.parts = 5, .seed = 7, .restarts = 12}),
            b = make_partition(graph, {.parts = 5, .seed = 7, .restarts = 12});
  EXPECT_EQ(a.part_of, b.part_of);
  EXPECT_EQ(a.part_of.front(), 0) << "parts are numbered by their first nodes";
}

TEST(Partition, AChainIsCutWhereLittleCrosses) {
  Profile profile;
  for (double bytes : {9.0, 9.0, 1.0, 9.0, 9.0, 0.0}) profile.layers.push_back({"l", 1, 1, bytes, 0});
  Partition partition = make_partition(graph_of(profile), {.parts = 2, .balance = 1});
  EXPECT_EQ(partition.part_of, (std::vector<int>{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(partition.cut_bytes, 1);
}

TEST(Partition, AnOutputCrossesOnceForEachMachineThatReadsIt) {
  Profile profile;
  for (int i = 0; i < 4; ++i) profile.layers.push_back({"l", 0, 1, 10, 0});
  profile.edges = {{0, 1}, {0, 2}, {0, 3}, {0, 3}};
  PartitionGraph graph = graph_of(profile);
  EXPECT_EQ(cut_bytes(graph, {0, 1, 1, 1}), 10);
  EXPECT_EQ(cut_bytes(graph, {0, 1, 2, 2}), 20);
  EXPECT_EQ(cut_bytes(graph, {0, 0, 0, 0}), 0);
}

TEST(Partition, WeighsWhatItIsTold) {
  Profile profile;
  profile.layers = {{"a", 1, 2, 1, 100}, {"b", 3, 0, 1, 7}};
  EXPECT_EQ(graph_of(profile).weights, (std::vector<double>{3, 3}));
  EXPECT_EQ(graph_of(profile, PartitionWeight::kParameters).weights, (std::vector<double>{100, 7}));
  EXPECT_EQ(graph_of(profile, PartitionWeight::kNodes).weights, (std::vector<double>{1, 1}));
  EXPECT_THROW(parse_partition_weight("bytes"), ConfigError);
}

TEST(Partition, RefusesWhatCannotBe) {
  Profile profile = grid(2);
  PartitionGraph graph = graph_of(profile);
  EXPECT_THROW(make_partition(graph, {.parts = 0}), ConfigError);
  EXPECT_THROW(make_partition(graph, {.parts = 1 << 20}), ConfigError);
  EXPECT_THROW(make_partition(graph, {.parts = 2, .balance = 0.9}), ConfigError);
  EXPECT_THROW(make_partition(graph, {.parts = 2, .balance = kInfinity}), ConfigError);
  EXPECT_THROW(make_partition(PartitionGraph{}, {.parts = 2}), ConfigError);
  try {
    make_partition(graph, {.parts = 3});
    FAIL() << "four equal nodes on three machines are not balanced";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("use --balance 1.5"), std::string::npos) << error.what();
  }
}

TEST(Partition, NodesWithoutWeightAndPartsWithoutNodesAreFine) {
  Profile profile = grid(2);
  for (Layer& layer : profile.layers) layer.backward = 0;
  EXPECT_EQ(make_partition(graph_of(profile), {.parts = 3}).cut_bytes, 0);
  EXPECT_EQ(make_partition(graph_of(grid(2)), {.parts = 1}).cut_bytes, 0);
}

}  // namespace
}  // namespace yoke::plan
