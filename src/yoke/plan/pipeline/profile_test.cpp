#include "yoke/plan/pipeline/profile.h"

#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/plan/pipeline/cuts.h"
#include "yoke/plan/pipeline/plan.h"

namespace yoke::plan {
namespace {

// Two branches from node2 that meet in node5; node6 is an output nobody reads.
constexpr const char* kGraph =
    "node5 -- Add -- forward_compute_time=1.000, backward_compute_time=1.000, activation_size=7.0, "
    "parameter_size=0.000\n"
    "node1 -- Input0 -- forward_compute_time=90.000, backward_compute_time=0.000, activation_size=5.0, "
    "parameter_size=0.000\n"
    "node2 -- Conv(1,  2) -- forward_compute_time=2.000, backward_compute_time=4.000, activation_size=10.0, "
    "parameter_size=8.000\n"
    "node3 -- LSTM -- forward_compute_time=1.000, backward_compute_time=2.000, activation_size=[3.0; 1.0], "
    "parameter_size=4.000\n"
    "node4 -- ReLU -- forward_compute_time=0.500, backward_compute_time=0.500, activation_size=6.0, "
    "parameter_size=0.000\n"
    "node6 -- __getitem__(1) -- forward_compute_time=0.000, backward_compute_time=0.000, "
    "activation_size=1.0, parameter_size=0.000\n"
    "\tnode1 -- node2\n\tnode2 -- node3\n\tnode2 -- node4\n\tnode3 -- node5\n\tnode4 -- node5\n\tnode3 -- "
    "node6";

std::string why_not(const std::string& text) {
  try {
    parse_profile(text, "x.txt");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "it was accepted";
}

TEST(Profile, GraphsLoseInputsAndUnusedOutputs) {
  Profile profile = parse_profile(kGraph, "x.txt");
  ASSERT_EQ(profile.layers.size(), 4u);
  EXPECT_EQ(profile.layers[0].name, "Conv(1,  2)");
  EXPECT_DOUBLE_EQ(profile.layers[0].forward, 0.002);
  EXPECT_DOUBLE_EQ(profile.layers[1].activation_bytes, 4);
  EXPECT_EQ(profile.edges, (std::vector<Edge>{{0, 1}, {0, 2}, {1, 3}, {2, 3}}));
}

TEST(Profile, WhatCrossesACutIsWhatIsReadBehindIt) {
  Cuts cuts = prefix_cuts(parse_profile(kGraph, "x.txt"));
  EXPECT_EQ(cuts.crossing, (std::vector<double>{0, 10, 14, 10, 0}));
  EXPECT_EQ(cuts.weights, (std::vector<double>{0, 8, 12, 12, 12}));
}

TEST(Profile, AntichainsAreSetsClosedUnderPredecessors) {
  Cuts cuts = antichain_cuts(parse_profile(kGraph, "x.txt"));
  EXPECT_EQ(cuts.count(), 5);  // Conv; with LSTM; with ReLU; with both; all
  EXPECT_EQ(cuts.layers.back(), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_FALSE(cuts.ordered(2, 3));
  EXPECT_THROW(antichain_cuts(parse_profile(kGraph, "x.txt"), 3), ConfigError);
}

TEST(Profile, JsonReadsBack) {
  Profile graph = parse_profile(kGraph, "x.txt");
  EXPECT_EQ(parse_profile(to_json(graph), "y.json"), graph);
  Profile chain{"cpu", 64, {{"a", 1, 2, 3, 4}, {"b", 0.5, 0.25, 0, 0}}, {}, 0};
  EXPECT_EQ(parse_profile(to_json(chain), "y.json"), chain);
  EXPECT_EQ(prefix_cuts(chain).crossing, (std::vector<double>{0, 3, 0}));
}

TEST(Profile, MistakesNameFileLineAndWhatIsAccepted) {
  EXPECT_NE(why_not("").find("x.txt: there are no layers"), std::string::npos);
  EXPECT_NE(why_not("node1 -- a").find("x.txt:1:"), std::string::npos);
  std::string node =
      "node1 -- a -- forward_compute_time=1, backward_compute_time=1, activation_size=1, parameter_size=1\n";
  EXPECT_NE(why_not(node + node).find("x.txt:2: node1 appears twice"), std::string::npos);
  EXPECT_NE(why_not(node + "\tnode1 -- node9\n").find("x.txt:2: node9"), std::string::npos);
  EXPECT_NE(why_not(node + "\tnode1 -- node1\n").find("feeds itself"), std::string::npos);
  std::string second = node;
  second.replace(0, 5, "node2");
  EXPECT_NE(why_not(node + second + "\tnode1 -- node2\n\tnode2 -- node1\n").find("cycle"), std::string::npos);
  EXPECT_NE(why_not("nodeX -- a -- b").find("node1, node2"), std::string::npos);
  EXPECT_NE(why_not("node1 -- a -- forward_compute_time=-1, backward_compute_time=1, activation_size=1, "
                    "parameter_size=1")
                .find("from 0"),
            std::string::npos);
  EXPECT_NE(why_not("node1 -- a -- forward_compute_time=1, backward_compute_time=1, activation_size=[1, "
                    "parameter_size=1")
                .find("]"),
            std::string::npos);
  EXPECT_NE(why_not("{\n\n oops").find("x.txt:3: not valid JSON"), std::string::npos);
  EXPECT_NE(why_not(R"({"layers": [{"forward": 1}]})").find("layers[0]: `backward` is missing"),
            std::string::npos);
  EXPECT_NE(
      why_not(R"({"layers": [{"forward": 1, "backward": "x", "activation_bytes": 1, "parameter_bytes": 1}]})")
          .find("a number"),
      std::string::npos);
  EXPECT_NE(
      why_not(
          R"({"layers": [{"forward": 1, "backward": 1e99, "activation_bytes": 1, "parameter_bytes": 1}]})")
          .find("1e+18"),
      std::string::npos);
  EXPECT_NE(
      why_not(
          R"({"layers": [{"forward": 1, "backward": 1, "activation_bytes": 1, "parameter_bytes": 1}], "edges": [[0, 5]]})")
          .find("later one"),
      std::string::npos);
}

TEST(Levels, AreReadFromTheInnermostOutwards) {
  EXPECT_EQ(parse_levels("4@12GB/s,2@10gbit"), (std::vector<Level>{{4, 12e9}, {2, 1.25e9}}));
  for (const char* wrong :
       {"", "4", "x@1gbit", "4@", "4@fast", "0@1gbit", "-2@1gbit", "4@0", "2000000@1gbit"})
    EXPECT_THROW(parse_levels(wrong), ConfigError) << wrong;
}

TEST(PipelinePlan, StagesThatDoNotFollowEachOtherAreRefused) {
  EXPECT_THROW(parse_plan(R"({"stages": []})", "p.json"), ConfigError);
  EXPECT_THROW(
      parse_plan(R"({"stages": [{"first": 1, "last": 3, "replicas": 1, "compute_seconds": 1}]})", "p.json"),
      ConfigError);
  EXPECT_THROW(
      parse_plan(R"({"stages": [{"first": 0, "last": 3, "replicas": 0, "compute_seconds": 1}]})", "p.json"),
      ConfigError);
  EXPECT_THROW(
      parse_plan(R"({"stages": [{"first": 0, "last": 3, "replicas": 1, "compute_seconds": -1}]})", "p.json"),
      ConfigError);
  PipelinePlan plan =
      parse_plan(R"({"stages": [{"first": 0, "last": 3, "replicas": 2, "compute_seconds": 3}]})", "p.json");
  EXPECT_EQ(parse_plan(to_json(plan), "q.json"), plan);
}

}  // namespace
}  // namespace yoke::plan
