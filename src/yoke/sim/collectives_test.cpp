#include "yoke/sim/collectives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "yoke/base/error.h"

namespace yoke::sim {
namespace {

using plan::Action;
using plan::Algorithm;
using plan::Collective;
using plan::CollectiveRequest;
using plan::Range;
using plan::Step;
using Buffers = std::vector<std::vector<int64_t>>;

constexpr Collective kAll[] = {
    Collective::kAllReduce, Collective::kReduce,   Collective::kReduceScatter,
    Collective::kAllGather, Collective::kAllToAll, Collective::kBroadcast,
    Collective::kGather,    Collective::kScatter,  Collective::kBarrier,
};
constexpr int64_t kNothing = -1'000'000'000;  // what must be overwritten or not be looked at

int64_t value(int rank, int64_t i) {
  return (rank + 1) * 1000 + i * (rank + 3);
}
int64_t sum(int size, int64_t i) {
  int64_t total = 0;
  for (int r = 0; r < size; ++r) total += value(r, i);
  return total;
}
int64_t add(int64_t mine, int64_t theirs) {
  return mine + theirs;
}

Range part(const CollectiveRequest& request, int p) {
  if (request.parts.empty()) return plan::part_of(request.count, p, request.size);
  int64_t begin = 0;
  for (int i = 0; i < p; ++i) begin += request.parts[static_cast<size_t>(i)];
  return {begin, request.parts[static_cast<size_t>(p)]};
}

int owner(const CollectiveRequest& request, int64_t i) {
  int p = 0;
  while (i >= part(request, p).begin + part(request, p).count) ++p;
  return p;
}

// What element i of rank r's buffer is before the operation.
int64_t before(const CollectiveRequest& request, int r, int64_t i) {
  int64_t width = request.count / (2 * request.size);
  switch (request.op) {
    case Collective::kAllGather:
    case Collective::kGather:
      return owner(request, i) == r ? value(r, i) : kNothing;
    case Collective::kBroadcast:
    case Collective::kScatter:
      return r == request.root ? value(r, i) : kNothing;
    case Collective::kAllToAll:
      if (i < request.count / 2) return value(r, i);
      // The executor has copied the own part.
      return i / width - request.size == r ? value(r, i - request.count / 2) : kNothing;
    default:
      return value(r, i);
  }
}

// What it must be afterwards; kNothing: no promise.
int64_t after(const CollectiveRequest& request, int r, int64_t i) {
  int64_t width = request.count / (2 * request.size);
  switch (request.op) {
    case Collective::kAllReduce:
      return sum(request.size, i);
    case Collective::kReduce:
      return r == request.root ? sum(request.size, i) : kNothing;
    case Collective::kReduceScatter:
      return owner(request, i) == r ? sum(request.size, i) : kNothing;
    case Collective::kAllGather:
      return value(owner(request, i), i);
    case Collective::kGather:
      return r == request.root ? value(owner(request, i), i) : kNothing;
    case Collective::kBroadcast:
      return value(request.root, i);
    case Collective::kScatter:
      return owner(request, i) == r ? value(request.root, i) : kNothing;
    case Collective::kAllToAll:
      if (i < request.count / 2) return value(r, i);
      return value(static_cast<int>(i / width) - request.size, r * width + i % width);
    default:
      return kNothing;
  }
}

Buffers buffers_for(const CollectiveRequest& request) {
  Buffers buffers(static_cast<size_t>(request.size));
  for (int r = 0; r < request.size; ++r) {
    for (int64_t i = 0; i < request.count; ++i)
      buffers[static_cast<size_t>(r)].push_back(before(request, r, i));
  }
  return buffers;
}

std::string title(const CollectiveRequest& request) {
  return fmt::format("{} {} n={} count={} root={} machine={}{}", to_string(request.op),
                     to_string(request.algorithm), request.size, request.count, request.root,
                     request.machine_size, request.parts.empty() ? "" : " unequal");
}

void expect_right(const CollectiveRequest& request) {
  SCOPED_TRACE(title(request));
  StepLists lists = steps_of_all(request);
  ASSERT_NO_THROW(plan::validate_steps(lists));
  Buffers buffers = buffers_for(request);
  ASSERT_NO_THROW(replay(lists, buffers, add));
  for (int r = 0; r < request.size; ++r) {
    for (int64_t i = 0; i < request.count; ++i) {
      int64_t want = after(request, r, i);
      if (want == kNothing) continue;

      ASSERT_EQ(buffers[static_cast<size_t>(r)][static_cast<size_t>(i)], want) << "rank " << r << " at " << i;
    }
  }
}

bool has_root(Collective op) {
  return op == Collective::kReduce || op == Collective::kBroadcast || op == Collective::kGather ||
         op == Collective::kScatter;
}

// Every operation, algorithm, number of ranks, root and machine size; `visit` gets the request.
template <class Visit>
void for_all(int sizes, const std::vector<int64_t>& counts, Visit visit) {
  for (Collective op : kAll) {
    for (Algorithm algorithm : plan::algorithms_for(op)) {
      for (int size = 1; size <= sizes; ++size) {
        for (int64_t count : counts) {
          CollectiveRequest request{
              .op = op, .algorithm = algorithm, .size = size, .count = count, .piece = 3};
          if (op == Collective::kBarrier) request.count = 0;
          if (op == Collective::kAllToAll) request.count = count * 2 * size;
          std::set<int> roots{0};
          if (has_root(op)) roots.insert({size / 2, size - 1});
          for (int root : roots) {
            request.root = root;
            for (int machine = 1; machine <= size; ++machine) {
              request.machine_size = machine;
              if (size % machine == 0 && (machine == 1 || algorithm == Algorithm::kHierarchical))
                visit(request);
            }
          }
          if (op == Collective::kBarrier) break;
        }
      }
    }
  }
}

TEST(CollectiveReplay, EveryAlgorithmGivesTheResultForOneToSeventeenRanks) {
  for_all(17, {0, 1, 7, 33}, expect_right);
}

TEST(CollectiveReplay, RanksThatOnlySumContributeNothing) {
  for (int workers = 1; workers <= 6; ++workers) {
    for (int spares = 0; spares <= workers; ++spares) {
      for (int64_t count : {0, 1, 7, 200}) {
        CollectiveRequest request{.algorithm = Algorithm::kSummation,
                                  .size = workers + spares,
                                  .count = count,
                                  .piece = 9,
                                  .spares = spares};
        Buffers buffers = buffers_for(request);
        for (int r = workers; r < request.size; ++r)
          std::fill(buffers[static_cast<size_t>(r)].begin(), buffers[static_cast<size_t>(r)].end(), kNothing);
        replay(steps_of_all(request), buffers, add);
        for (int r = 0; r < workers; ++r)
          for (int64_t i = 0; i < count; ++i)
            ASSERT_EQ(buffers[static_cast<size_t>(r)][static_cast<size_t>(i)], sum(workers, i))
                << title(request) << " spares=" << spares << " rank " << r << " at " << i;
      }
    }
  }
}

TEST(CollectiveReplay, PartsMayDifferInSizeAndBeEmpty) {
  for (Collective op :
       {Collective::kAllGather, Collective::kReduceScatter, Collective::kGather, Collective::kScatter}) {
    for (Algorithm algorithm : plan::algorithms_for(op)) {
      for (int size : {1, 2, 3, 5, 6, 8, 12, 17}) {
        CollectiveRequest request{.op = op, .algorithm = algorithm, .size = size, .root = size - 1};
        request.machine_size = size % 3 == 0 ? 3 : 1;
        for (int p = 0; p < size; ++p) {
          request.parts.push_back(p % 4 == 1 ? 0 : (p * 7) % 5);
          request.count += request.parts.back();
        }
        expect_right(request);
      }
    }
  }
}

bool overlap(const Range& a, const Range& b) {
  return std::max(a.begin, b.begin) < std::min(a.begin + a.count, b.begin + b.count);
}

// An executor may then receive in place while it sends, and needs no copy of what it sends. What is merged is
// written when the round is over.
TEST(CollectiveReplay, NoRankWritesInARoundWhatItSendsInThatRound) {
  for_all(17, {33}, [](const CollectiveRequest& request) {
    for (const auto& steps : steps_of_all(request)) {
      for (const Step& a : steps) {
        for (const Step& b : steps) {
          bool writes =
              &a != &b && a.round == b.round && b.action != Action::kSend && b.action != Action::kMerge;
          if (!writes || a.action == Action::kCombine) continue;
          ASSERT_FALSE(overlap(a.range, b.range)) << title(request);
        }
      }
    }
  });
}

// So no executor can wait for ever, even one whose sends wait for the receiver.
TEST(CollectiveReplay, AMessageIsReceivedInTheRoundInWhichItIsSent) {
  for_all(17, {33}, [](const CollectiveRequest& request) {
    StepLists lists = steps_of_all(request);
    std::multiset<std::vector<int64_t>> sent, received;
    for (int r = 0; r < request.size; ++r) {
      for (const Step& step : lists[static_cast<size_t>(r)]) {
        if (step.action == Action::kSend) {
          sent.insert({r, step.peer, step.round, step.range.count});
        } else {
          received.insert({step.peer, r, step.round, step.range.count});
        }
      }
    }
    ASSERT_EQ(sent, received) << title(request);
  });
}

TEST(CollectiveReplay, WhoeverHasTheResultHasTheSameBits) {
  // Not associative and not commutative: another order gives another number.
  auto mix = [](int64_t mine, int64_t theirs) { return mine * 31 + theirs * 17 + 1; };
  auto wrap = [&](int64_t mine, int64_t theirs) { return mix(mine % 1'000'003, theirs % 1'000'003); };
  for (Algorithm algorithm : plan::algorithms_for(Collective::kAllReduce)) {
    for (int size = 2; size <= 12; ++size) {
      CollectiveRequest request{.algorithm = algorithm, .size = size, .count = 29, .piece = 2};
      request.machine_size = size % 2 == 0 ? 2 : 1;
      Buffers buffers = buffers_for(request);
      replay(steps_of_all(request), buffers, wrap);
      for (const auto& buffer : buffers) ASSERT_EQ(buffer, buffers[0]) << title(request);
    }
  }
}

TEST(CollectiveReplay, AnExchangeCombinesInRankOrderOnEveryRank) {
  auto append = [](int64_t mine, int64_t theirs) { return mine * 10 + theirs; };
  for (int size = 1; size <= 17; ++size) {
    CollectiveRequest request{.algorithm = Algorithm::kExchange, .size = size, .count = 1};
    Buffers buffers(static_cast<size_t>(size));
    int64_t wanted = 0;
    for (int r = 0; r < size; ++r) {
      buffers[static_cast<size_t>(r)].push_back(r % 10);
      wanted = r == 0 ? 0 : append(wanted, r % 10);
    }
    std::vector<Moved> moved = replay(steps_of_all(request), buffers, append);
    for (int r = 0; r < size; ++r) {
      EXPECT_EQ(buffers[static_cast<size_t>(r)][0], wanted) << "rank " << r << " of " << size;
      EXPECT_EQ(moved[static_cast<size_t>(r)].elements_combined, size - 1);
    }
  }
}

TEST(CollectiveReplay, CombinesInRankOrderWhereEverybodySendsToTheOwner) {
  CollectiveRequest request{.algorithm = Algorithm::kDirect, .rank = 2, .size = 4, .count = 4};
  std::vector<int> peers;
  for (const Step& step : plan::collective_steps(request)) {
    if (step.action == Action::kCombine) peers.push_back(step.peer);
  }
  EXPECT_EQ(peers, (std::vector<int>{0, 1, 3}));
}

TEST(CollectiveReplay, BadListsAreNamed) {
  auto message = [](StepLists lists, Buffers buffers) -> std::string {
    try {
      replay(lists, buffers, add);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  Step send{0, Action::kSend, 1, {0, 2}}, receive{0, Action::kReceive, 0, {0, 2}};
  Buffers two{{1, 2}, {3, 4}};
  EXPECT_EQ(message({{send}, {receive}}, two), "");
  EXPECT_NE(message({{}, {receive}}, two).find("rank 1 deadlocks in round 0"), std::string::npos);
  EXPECT_NE(message({{send}, {}}, two).find("never received"), std::string::npos);
  EXPECT_NE(message({{send}, {{0, Action::kReceive, 0, {0, 1}}}}, two).find("expects 1 elements"),
            std::string::npos);
  EXPECT_NE(message({{{0, Action::kSend, 1, {1, 2}}}, {receive}}, two).find("has 2 elements"),
            std::string::npos);
  EXPECT_NE(message({{send}}, two).find("1 lists for 2 buffers"), std::string::npos);
}

// Where nothing is cut into pieces, the closed form is what the list costs.
TEST(CollectivePrice, ClosedFormsEqualThePriceOfTheLists) {
  plan::LinkCost cost{.alpha = 1e-5, .beta = 1 / 12.5e9, .gamma = 1e-11};
  for (Collective op : kAll) {
    for (Algorithm algorithm : plan::algorithms_for(op)) {
      bool pipelined = algorithm == Algorithm::kTree || algorithm == Algorithm::kSummation ||
                       ((op == Collective::kReduce || op == Collective::kBroadcast) &&
                        (algorithm == Algorithm::kRing || algorithm == Algorithm::kHierarchical));
      if (pipelined) continue;
      for (int size = 1; size <= 16; ++size) {
        CollectiveRequest request{.op = op, .algorithm = algorithm, .size = size, .count = 16 * 720720};
        request.machine_size = size % 4 == 0 ? 4 : size % 3 == 0 ? 3 : 1;
        if (op == Collective::kBarrier) request.count = 0;
        if (op == Collective::kAllToAll) request.count *= 2;
        int64_t bytes = request.count * 4 / (op == Collective::kAllToAll ? 2 : 1);
        double price = price_rounds(steps_of_all(request), 4, cost);
        double closed = plan::predict_seconds(op, algorithm, size, bytes, cost, request.machine_size);
        // Pairs stand for two parts where the others stand for one: the closed form takes them as equal.
        bool folded = algorithm == Algorithm::kHalvingDoubling && (size & (size - 1)) != 0;
        EXPECT_LE(price, closed * (folded ? 1.25 : 1 + 1e-9)) << title(request);
        EXPECT_GE(price, closed * (folded ? 0.75 : 1 - 1e-9)) << title(request);
      }
    }
  }
}

TEST(CollectivePrice, PiecesThatFollowEachOtherComeNearTheClosedForm) {
  plan::LinkCost cost{.alpha = 1e-7, .beta = 1 / 10e9};
  for (int size : {4, 8, 16}) {
    for (Collective op : {Collective::kAllReduce, Collective::kBroadcast, Collective::kReduce}) {
      CollectiveRequest request{.op = op, .algorithm = Algorithm::kTree, .size = size, .count = 1 << 24};
      double price = price_rounds(steps_of_all(request), 4, cost);
      double closed = plan::predict_seconds(op, Algorithm::kTree, size, request.count * 4, cost);
      EXPECT_GT(price, 0.7 * closed) << title(request);
      EXPECT_LT(price, 1.3 * closed) << title(request);
    }
  }
}

}  // namespace
}  // namespace yoke::sim
