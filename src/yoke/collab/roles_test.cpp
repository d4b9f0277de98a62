#include "yoke/collab/roles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "yoke/base/error.h"
#include "yoke/base/random.h"

namespace yoke::collab {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

// The smallest time of the linear programme over the vertices of its polytope: every choice of as many active
// constraints as there are shares.
class Vertices {
 public:
  explicit Vertices(const std::vector<Link>& links) : peers_(links.size()) {
    double givers = 0;
    for (const Link& link : links) givers += link.gives;
    for (size_t i = 0; i < peers_; ++i) {
      const Link& link = links[i];
      const double own = link.gives, n = static_cast<double>(peers_);
      at_least_0(i, 1, 0, 0);  // share
      if (!link.sums) at_least_0(i, -1, 0, 0);
      at_least_0(i, -(n - 1 - own), *link.upload, -own);  // time * upload - load
      at_least_0(i, -(givers - own - 1), *link.download, -1);
    }
  }

  double least_time() {
    std::vector<size_t> active(peers_);
    choose(active, 0, 0);
    return best_;
  }

 private:
  struct Row {
    std::vector<double> factors;  // of the shares and the time
    double constant;
  };
  void at_least_0(size_t share, double factor, double of_time, double constant) {
    Row row{std::vector<double>(peers_ + 1), constant};
    row.factors[share] = factor;
    row.factors[peers_] = of_time;
    rows_.push_back(row);
  }

  void choose(std::vector<size_t>& active, size_t place, size_t from) {
    if (place == peers_) return try_vertex(active);
    for (size_t i = from; i < rows_.size(); ++i) {
      active[place] = i;
      choose(active, place + 1, i + 1);
    }
  }

  void try_vertex(const std::vector<size_t>& active) {
    std::vector<std::vector<double>> a;
    for (size_t i : active) {
      a.push_back(rows_[i].factors);
      a.back().push_back(-rows_[i].constant);
    }
    a.emplace_back(peers_ + 2, 1.0)[peers_] = 0;  // the shares add up to 1
    const size_t n = peers_ + 1;
    for (size_t c = 0; c < n; ++c) {
      size_t pivot = c;
      for (size_t r = c; r < n; ++r)
        if (std::abs(a[r][c]) > std::abs(a[pivot][c])) pivot = r;
      if (std::abs(a[pivot][c]) < 1e-12) return;
      std::swap(a[c], a[pivot]);
      for (size_t r = 0; r < n; ++r) {
        if (r == c) continue;
        const double factor = a[r][c] / a[c][c];
        for (size_t k = c; k <= n; ++k) a[r][k] -= factor * a[c][k];
      }
    }
    std::vector<double> x;
    for (size_t c = 0; c < n; ++c) x.push_back(a[c][n] / a[c][c]);
    for (const Row& row : rows_)
      if (std::inner_product(x.begin(), x.end(), row.factors.begin(), row.constant) < -1e-9) return;
    best_ = std::min(best_, x[peers_]);
  }

  size_t peers_;
  std::vector<Row> rows_;
  double best_ = 1e300;
};

std::vector<PeerPower> random_peers(Random& random, size_t count) {
  std::vector<PeerPower> peers;
  for (size_t i = 0; i < count; ++i)
    peers.push_back({1 + 99 * random.uniform(), 1 + 99 * random.uniform(), 1 + 99 * random.uniform(),
                     i == 0 || random.below(4) > 0});
  return peers;
}

TEST(Roles, SharesForAGivenChoiceAreTheOptimumOfTheLinearProgramme) {
  Random random(3);
  for (int trial = 0; trial < 150; ++trial) {
    std::vector<Link> links;
    const size_t peers = 2 + random.below(3);
    for (size_t i = 0; i < peers; ++i)
      links.push_back({1 + 99 * random.uniform(), 1 + 99 * random.uniform(), i == 0 || random.below(4) > 0,
                       i == 0 || random.below(3) > 0});
    Balance balance = balance_links(links);
    EXPECT_NEAR(std::accumulate(balance.shares.begin(), balance.shares.end(), 0.0), 1, 1e-9);
    const double least = Vertices(links).least_time();
    EXPECT_NEAR(balance.time, least, 1e-7 * least) << "trial " << trial;
  }
}

double best_of_all_subsets(const std::vector<PeerPower>& peers, const StepWork& work) {
  double best = 1e300;
  for (uint64_t subset = 1; subset < uint64_t{1} << peers.size(); ++subset) {
    std::vector<bool> computes;
    for (size_t i = 0; i < peers.size(); ++i) computes.push_back((subset >> i & 1) != 0);
    best = std::min(best, roles_with(peers, work, computes).seconds());
  }
  return best;
}

TEST(Roles, NoChoiceOfWhoComputesIsFaster) {
  Random random(5);
  for (int trial = 0; trial < 100; ++trial) {
    const std::vector<PeerPower> peers = random_peers(random, 1 + random.below(6));
    const StepWork work{1000 * random.uniform(), 1000 * random.uniform()};
    const double best = best_of_all_subsets(peers, work);
    EXPECT_NEAR(choose_roles(peers, work).seconds(), best, 1e-8 * best) << "trial " << trial;
  }
}

TEST(Roles, OfManyPeersTheChoiceIsWithinOnePercentOfTheBest) {
  Random random(7);
  for (int trial = 0; trial < 60; ++trial) {
    const std::vector<PeerPower> peers = random_peers(random, 9);
    const StepWork work{1000 * random.uniform(), 1000 * random.uniform()};
    EXPECT_LE(choose_roles(peers, work).seconds(), 1.01 * best_of_all_subsets(peers, work))
        << "trial " << trial;
  }
}

TEST(Roles, EqualPeersAllComputeAndShareEqually) {
  Roles roles = choose_roles(std::vector<PeerPower>(4, {1, 1, 1}), {4, 1});
  EXPECT_THAT(roles.computes, ElementsAre(true, true, true, true));
  for (double share : roles.shares) EXPECT_NEAR(share, 0.25, 1e-9);
  EXPECT_NEAR(roles.compute_seconds, 1, 1e-9);
  EXPECT_NEAR(roles.average_seconds, 1.5, 1e-9);
}

// Its gradient would keep all others waiting.
TEST(Roles, ASlowPeerWithASlowUploadOnlyReceives) {
  Roles roles = choose_roles({{10, 10, 10}, {10, 10, 10}, {0.1, 10, 1}}, {100, 1});
  EXPECT_THAT(roles.computes, ElementsAre(true, true, false));
  EXPECT_LT(roles.shares[2], 0.02);
  EXPECT_LT(roles.average_seconds, 0.2);
}

// The same link with a fast processor is worth the wait.
TEST(Roles, AFastPeerWithASlowUploadComputes) {
  Roles roles = choose_roles({{10, 10, 1}, {10, 10, 1}, {0.1, 10, 100}}, {1000, 1});
  EXPECT_TRUE(roles.computes[2]);
}

// A parameter server comes out of it.
TEST(Roles, AFastLinkAmongSlowOnesSumsEverything) {
  Roles roles = choose_roles({{1, 2, 10}, {1, 2, 10}, {1, 2, 10}, {3, 3, 1}}, {1000, 10});
  EXPECT_NEAR(roles.shares[3], 1, 1e-9);
  EXPECT_NEAR(roles.average_seconds, 10, 1e-9);
}

TEST(Roles, WhoAcceptsNoConnectionsSumsNothing) {
  Roles roles = choose_roles({{1, 1, 1}, {1, 1, 1}, {100, 100, 1, false}}, {1, 1});
  EXPECT_EQ(roles.shares[2], 0);
  EXPECT_THROW(choose_roles({{1, 1, 1, false}}, {1, 1}), ConfigError);
}

// A reducer moves as much in both directions.
TEST(Roles, TheSlowerDirectionOfALinkDecides) {
  Roles up = choose_roles({{10, 10, 1}, {10, 10, 1}, {10, 10, 1}, {6, 10, 1}}, {1000, 1});
  Roles both = choose_roles({{10, 10, 1}, {10, 10, 1}, {10, 10, 1}, {6, 6, 1}}, {1000, 1});
  EXPECT_NEAR(up.average_seconds, both.average_seconds, 1e-9);
}

TEST(Roles, BeforeASpeedIsKnownSlowUploadsWait) {
  const PeerPower fast{10, 10}, slow{0.1, 10}, medium{1, 10};
  EXPECT_THAT(choose_roles({fast, fast, slow}, {1, 1}).computes, ElementsAre(true, true, false));
  EXPECT_THAT(choose_roles({slow, fast, slow}, {1, 1}).computes, ElementsAre(false, true, false));
  EXPECT_THAT(choose_roles({fast, fast, medium}, {1, 1}).computes, ElementsAre(true, true, true));
  EXPECT_THAT(choose_roles({slow, slow, slow}, {1, 1}).computes, ElementsAre(true, true, true));
}

TEST(Roles, UnknownSpeedsCountAsTheMean) {
  Roles roles = choose_roles({{2, 2, 3}, {std::nullopt, std::nullopt, 0}, {1, 1, 1}}, {1, 1});
  EXPECT_THAT(roles.shares, choose_roles({{2, 2, 3}, {1.5, 1.5, 2}, {1, 1, 1}}, {1, 1}).shares);
  Roles nothing_known = choose_roles(std::vector<PeerPower>(3), {1, 1});
  EXPECT_THAT(nothing_known.computes, ElementsAre(true, true, true));
  EXPECT_THAT(nothing_known.shares,
              ElementsAre(DoubleNear(1.0 / 3, 1e-9), DoubleNear(1.0 / 3, 1e-9), DoubleNear(1.0 / 3, 1e-9)));
}

TEST(Roles, SharesOfTwoHundredPeersAreFoundAtOnce) {
  Random random(9);
  std::vector<PeerPower> peers;
  for (int i = 0; i < 200; ++i) peers.push_back({1 + 9 * random.uniform(), 1 + 9 * random.uniform(), 1.0});
  Roles roles = choose_roles(peers, {10, 1});
  EXPECT_NEAR(std::accumulate(roles.shares.begin(), roles.shares.end(), 0.0), 1, 1e-9);
}

}  // namespace
}  // namespace yoke::collab
