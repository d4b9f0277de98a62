#include "yoke/plan/collectives/steps.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "yoke/base/error.h"

namespace yoke::plan {
namespace {

std::string error_of(const CollectiveRequest& request) {
  try {
    collective_steps(request);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

Traffic traffic(const CollectiveRequest& request) {
  return traffic_of(collective_steps(request));
}

TEST(Ring, SendsWhatTheReferenceTableSays) {
  struct Row {
    int size;
    int64_t length;
    int rounds;
    int64_t sent;
  };
  for (Row row : {Row{2, 8, 2, 8}, Row{4, 16, 6, 24}, Row{4, 10, 6, 15}}) {
    for (int rank = 0; rank < row.size; ++rank) {
      Traffic t = traffic({.rank = rank, .size = row.size, .count = row.length});
      EXPECT_EQ(t.elements_sent, row.sent);
      EXPECT_EQ(t.rounds, row.rounds);
      EXPECT_EQ(t.messages_sent, row.rounds);
    }
  }
}

TEST(Ring, MovesTwiceTheDataLessOnePartForAnyNumberOfRanks) {
  for (int size = 1; size <= 17; ++size) {
    for (int64_t count : {0, 1, 5, 33, 1001}) {
      int64_t total = 0;
      for (int rank = 0; rank < size; ++rank) {
        Traffic t = traffic({.rank = rank, .size = size, .count = count});
        // Everything but block r + 1, then everything but block r + 2.
        int64_t kept =
            part_of(count, (rank + 1) % size, size).count + part_of(count, (rank + 2) % size, size).count;
        EXPECT_EQ(t.elements_sent, size == 1 ? 0 : 2 * count - kept);
        EXPECT_EQ(t.messages_sent, 2 * (size - 1));
        total += t.elements_sent;
      }
      EXPECT_EQ(total, 2 * (size - 1) * count);
    }
  }
}

TEST(Ring, HalfTheWorkIsHalfTheTraffic) {
  for (int size = 1; size <= 17; ++size) {
    for (Collective op : {Collective::kReduceScatter, Collective::kAllGather}) {
      int64_t total = 0;
      for (int rank = 0; rank < size; ++rank) {
        Traffic t = traffic({.op = op, .rank = rank, .size = size, .count = 101});
        EXPECT_EQ(t.messages_sent, size - 1);
        total += t.elements_sent;
      }
      EXPECT_EQ(total, (size - 1) * 101);
    }
  }
}

TEST(HalvingDoubling, MovesTheSameAsTheRingInFewerRounds) {
  for (int size : {2, 4, 8, 16}) {
    int log = size == 2 ? 1 : size == 4 ? 2 : size == 8 ? 3 : 4;
    CollectiveRequest request{.algorithm = Algorithm::kHalvingDoubling, .size = size, .count = size * 10};
    for (request.rank = 0; request.rank < size; ++request.rank) {
      Traffic t = traffic(request);
      EXPECT_EQ(t.elements_sent, 2 * (size - 1) * 10);
      EXPECT_EQ(t.messages_sent, 2 * log);
      EXPECT_EQ(t.rounds, 2 * log);
    }
  }
}

TEST(HalvingDoubling, SurplusRanksHandInAndGetBack) {
  CollectiveRequest request{.algorithm = Algorithm::kHalvingDoubling, .rank = 1, .size = 5, .count = 8};
  EXPECT_EQ(to_string(collective_steps(request)), "0 send 0 [0,8)\n5 receive 0 [0,8)\n");
}

TEST(Star, TheHubDoesAllTheWork) {
  CollectiveRequest request{.algorithm = Algorithm::kStar, .rank = 0, .size = 5, .count = 7};
  EXPECT_EQ(traffic(request).elements_sent, 4 * 7);
  request.rank = 3;
  EXPECT_EQ(traffic(request).elements_sent, 7);
  EXPECT_EQ(traffic(request).rounds, 2);
}

TEST(Direct, TakesTwoRoundsAndTheLeastTraffic) {
  for (int size = 2; size <= 17; ++size) {
    CollectiveRequest request{.algorithm = Algorithm::kDirect, .size = size, .count = size * 3};
    Traffic t = traffic(request);
    EXPECT_EQ(t.rounds, 2);
    EXPECT_EQ(t.elements_sent, 2 * (size - 1) * 3);
    EXPECT_EQ(t.messages_sent, 2 * (size - 1));
  }
}

TEST(Exchange, TakesOneRoundInWhichEverybodySendsEverything) {
  for (int size = 1; size <= 17; ++size) {
    for (int64_t count : {0, 1, 5, 33, 1001}) {
      for (int rank = 0; rank < size; ++rank) {
        Traffic t = traffic({.algorithm = Algorithm::kExchange, .rank = rank, .size = size, .count = count});
        EXPECT_EQ(t.rounds, size > 1 ? 1 : 0);
        EXPECT_EQ(t.elements_sent, (size - 1) * count);
        EXPECT_EQ(t.messages_sent, size - 1);
      }
    }
  }
}

TEST(Exchange, MergesInTheOrderOfRanks) {
  CollectiveRequest request{.algorithm = Algorithm::kExchange, .rank = 1, .size = 3, .count = 4};
  EXPECT_EQ(to_string(collective_steps(request)),
            "0 send 2 [0,4)\n0 send 0 [0,4)\n0 merge 0 [0,4)\n0 merge 2 [0,4)\n");
}

TEST(Hierarchical, OnlyAShareOfTheDataLeavesTheMachine) {
  CollectiveRequest request{
      .algorithm = Algorithm::kHierarchical, .rank = 5, .size = 8, .count = 64, .machine_size = 4};
  int64_t outside = 0;
  for (const Step& step : collective_steps(request)) {
    if (step.action == Action::kSend && step.peer / 4 != request.rank / 4) outside += step.range.count;
  }
  EXPECT_EQ(outside, 2 * (2 - 1) * 64 / 4 / 2);
  EXPECT_EQ(traffic(request).elements_sent, 2 * 7 * 64 / 8);
}

TEST(Tree, ParentsAreThoseOfTheReference) {
  auto expect = [](int size, std::vector<int> first, std::vector<int> second) {
    DoubleTree trees = double_binary_tree(size);
    EXPECT_EQ(trees.first, first) << size;
    EXPECT_EQ(trees.second, second) << size;
  };
  expect(1, {-1}, {-1});
  expect(2, {-1, 0}, {1, -1});
  expect(3, {-1, 2, 0}, {1, -1, 0});
  expect(4, {-1, 2, 0, 2}, {1, 3, 1, -1});
  expect(5, {-1, 2, 4, 2, 0}, {1, -1, 3, 0, 3});
  expect(6, {-1, 2, 4, 2, 0, 4}, {1, 5, 3, 1, 3, -1});
  expect(7, {-1, 2, 4, 2, 0, 6, 4}, {5, -1, 3, 5, 3, 1, 0});
  expect(8, {-1, 2, 4, 2, 0, 6, 4, 6}, {1, 3, 1, 7, 5, 3, 5, -1});
}

TEST(Tree, NoRankSendsMoreThanTwiceTheData) {
  for (int size = 2; size <= 17; ++size) {
    int64_t total = 0;
    for (int rank = 0; rank < size; ++rank) {
      Traffic t =
          traffic({.algorithm = Algorithm::kTree, .rank = rank, .size = size, .count = 1000, .piece = 10});
      // For an odd number of ranks one of them may stand inside both trees.
      EXPECT_LE(t.elements_sent, size % 2 == 0 ? 2000 : 3000) << size;
      total += t.elements_sent;
    }
    EXPECT_EQ(total, 2 * (size - 1) * 1000);
  }
}

TEST(Tree, PiecesFollowEachOther) {
  CollectiveRequest request{.algorithm = Algorithm::kTree, .rank = 7, .size = 8, .count = 800, .piece = 40};
  Traffic whole_halves = traffic({.algorithm = Algorithm::kTree, .rank = 7, .size = 8, .count = 800});
  EXPECT_EQ(traffic(request).elements_sent, whole_halves.elements_sent);
  EXPECT_EQ(traffic(request).messages_sent, 10 * whole_halves.messages_sent);
  EXPECT_EQ(traffic(request).rounds, whole_halves.rounds + 9);
}

TEST(Tree, ATinyPieceOfAHugeBufferDoesNotMakeAHugeList) {
  CollectiveRequest request{.algorithm = Algorithm::kTree, .size = 4, .count = int64_t{1} << 60, .piece = 1};
  EXPECT_LT(collective_steps(request).size(), 100'000U);
}

TEST(Parts, CoverTheBufferAlsoWhenItIsHuge) {
  constexpr int64_t kHuge = INT64_MAX;
  int64_t end = 0;
  for (int p = 0; p < 1000; ++p) {
    EXPECT_EQ(part_of(kHuge, p, 1000).begin, end);
    end += part_of(kHuge, p, 1000).count;
  }
  EXPECT_EQ(end, kHuge);
  EXPECT_EQ(part_of(10, 1, 4), (Range{2, 3}));
}

TEST(CollectiveSteps, OneRankHasNothingToDo) {
  for (auto op :
       {Collective::kAllReduce, Collective::kBroadcast, Collective::kGather, Collective::kAllToAll}) {
    for (Algorithm algorithm : algorithms_for(op))
      EXPECT_TRUE(collective_steps({.op = op, .algorithm = algorithm, .count = 8}).empty());
  }
}

TEST(CollectiveSteps, DirectExistsForEveryOperation) {
  for (int op = 0; op <= static_cast<int>(Collective::kBarrier); ++op) {
    auto algorithms = algorithms_for(static_cast<Collective>(op));
    EXPECT_NE(std::find(algorithms.begin(), algorithms.end(), Algorithm::kDirect), algorithms.end());
  }
}

TEST(CollectiveSteps, RefusesWhatMakesNoSense) {
  auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has(error_of({.op = Collective::kAllToAll}), "all_to_all has no ring form. Accepted: direct."));
  EXPECT_TRUE(has(error_of({.rank = 4, .size = 4}), "rank 4 of 4. Accepted: 0..3."));
  EXPECT_TRUE(has(error_of({.size = 0}), "at least one"));
  EXPECT_TRUE(has(error_of({.op = Collective::kBroadcast, .size = 2, .root = 2}), "root 2 among 2"));
  EXPECT_TRUE(has(error_of({.count = -1}), "-1 elements"));
  EXPECT_TRUE(has(error_of({.piece = 0}), "chunks of 0"));
  EXPECT_TRUE(has(error_of({.size = 4, .count = 3, .parts = {1, 1, 1, 0}}), "no parts"));
  EXPECT_TRUE(has(error_of({.op = Collective::kAllGather, .size = 2, .count = 3, .parts = {1, 1}}),
                  "1 of 3 elements belong to no part"));
  EXPECT_TRUE(has(error_of({.op = Collective::kAllGather, .size = 2, .count = 3, .parts = {3}}),
                  "1 parts for 2 ranks"));
  EXPECT_TRUE(has(error_of({.op = Collective::kAllGather, .size = 2, .count = 3, .parts = {4, -1}}),
                  "a part of 4 elements"));
  EXPECT_TRUE(has(error_of({.algorithm = Algorithm::kHierarchical, .size = 6, .machine_size = 4}),
                  "6 ranks on machines of 4"));
  EXPECT_TRUE(
      has(error_of({.op = Collective::kBarrier, .algorithm = Algorithm::kTree, .count = 1}), "barrier"));
  EXPECT_TRUE(
      has(error_of({.op = Collective::kAllToAll, .algorithm = Algorithm::kDirect, .size = 3, .count = 8}),
          "2 x 3 equal parts"));
}

TEST(CollectiveNames, AreReadBackAndUnknownOnesListTheAccepted) {
  for (int i = 0; i <= static_cast<int>(Collective::kBarrier); ++i)
    EXPECT_EQ(parse_collective(to_string(static_cast<Collective>(i))), static_cast<Collective>(i));
  for (int i = 0; i <= static_cast<int>(Algorithm::kSummation); ++i)
    EXPECT_EQ(parse_algorithm(to_string(static_cast<Algorithm>(i))), static_cast<Algorithm>(i));
  try {
    parse_algorithm("butterfly");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "algorithm 'butterfly' is unknown. Accepted: ring tree halving_doubling star direct "
                 "hierarchical exchange summation.");
  }
  EXPECT_THROW(parse_collective("allreduce"), ConfigError);
}

TEST(StepText, ReadsBackAsTheSameList) {
  for (Algorithm algorithm : algorithms_for(Collective::kAllReduce)) {
    auto steps =
        collective_steps({.algorithm = algorithm, .rank = 3, .size = 6, .count = 100, .machine_size = 3});
    EXPECT_EQ(parse_steps(to_string(steps)), steps);
  }
  EXPECT_EQ(to_string(std::vector<Step>{{0, Action::kSend, 1, {0, 4}}}), "0 send 1 [0,4)\n");
  EXPECT_TRUE(parse_steps("").empty());
}

TEST(StepText, ErrorsNameTheLine) {
  auto error = [](const std::string& text) -> std::string {
    try {
      parse_steps(text);
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(
      error("0 send 1 [0,4)\n0 push 1 [0,4)\n").find("line 2: expected send, receive, combine or merge"),
      std::string::npos);
  EXPECT_NE(error("x").find("line 1: expected a round"), std::string::npos);
  EXPECT_NE(error("0 send 1 [4,3)").find("an end behind"), std::string::npos);
  EXPECT_NE(error("0 send 1 [0,4) now").find("the end of the line"), std::string::npos);
  EXPECT_NE(error("1 send 1 [0,4)\n0 send 1 [0,4)").find("Rounds do not go back"), std::string::npos);
  for (const char* bad :
       {"-1 send 1 [0,4)", "0 send -1 [0,4)", "0 send 1 [-2,4)", "0 send 1 [0,99999999999999999999)",
        "99999999999 send 1 [0,4)", "0 send 1", "0", "0 send 1 [0;4)", "0 send 1 [0,4"})
    EXPECT_NE(error(bad), "") << bad;
}

TEST(StepLists, EveryReceiveNeedsItsSend) {
  Step send{0, Action::kSend, 1, {0, 4}}, receive{0, Action::kReceive, 0, {4, 4}};
  EXPECT_NO_THROW(validate_steps({{send}, {receive}}));
  EXPECT_THROW(validate_steps({{send}, {}}), ConfigError);
  EXPECT_THROW(validate_steps({{}, {receive}}), ConfigError);
  EXPECT_THROW(validate_steps({{send}, {{0, Action::kCombine, 0, {0, 3}}}}), ConfigError);
  EXPECT_THROW(validate_steps({{{0, Action::kSend, 0, {0, 4}}}}), ConfigError);
  EXPECT_THROW(validate_steps({{{0, Action::kSend, 2, {0, 4}}}, {}}), ConfigError);
  EXPECT_THROW(validate_steps({{{0, Action::kSend, 1, {-1, 4}}}, {}}), ConfigError);
}

}  // namespace
}  // namespace yoke::plan
