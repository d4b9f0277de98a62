#include "yoke/collab/balance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "yoke/base/error.h"
#include "yoke/base/random.h"

namespace yoke::collab {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

auto near(double value) {
  return DoubleNear(value, 1e-9);
}

TEST(Balance, EqualLinksShareEqually) {
  Balance balance = balance_load({1, 1, 1, 1});
  EXPECT_NEAR(balance.time, 1.5, 1e-9);
  EXPECT_THAT(balance.shares, ElementsAre(near(0.25), near(0.25), near(0.25), near(0.25)));
}

TEST(Balance, APeerWithoutIncomingConnectionsSumsNothing) {
  Balance balance = balance_load({1, 1, 1, 0});
  EXPECT_NEAR(balance.time, 5.0 / 3, 1e-9);
  EXPECT_THAT(balance.shares, ElementsAre(near(1.0 / 3), near(1.0 / 3), near(1.0 / 3), 0));
}

TEST(Balance, FasterLinksSumMore) {
  Balance balance = balance_load({1.2, 1, 1, 0.8});
  EXPECT_NEAR(balance.time, 1.5, 1e-9);
  EXPECT_THAT(balance.shares, ElementsAre(near(0.4), near(0.25), near(0.25), near(0.1)));
  EXPECT_THAT(integer_parts(7, balance.shares), ElementsAre(3, 2, 2, 0));
}

TEST(Balance, ASlowLinkThatOnlySendsSetsTheTime) {
  Balance balance = balance_load({4, 4, 1, 1});
  EXPECT_NEAR(balance.time, 1, 1e-9);
  EXPECT_NEAR(balance.shares[2], 0, 1e-9);
  EXPECT_NEAR(balance.shares[3], 0, 1e-9);
  EXPECT_NEAR(balance.shares[0] + balance.shares[1], 1, 1e-9);
}

TEST(Balance, OneFastLinkSumsForSlowOnes) {
  Balance balance = balance_load({100, 20, 20, 5});
  EXPECT_THAT(balance.shares, ElementsAre(near(1), near(0), near(0), near(0)));
  EXPECT_NEAR(balance.time, 0.2, 1e-9);  // the slow link sends and receives one vector
  EXPECT_NEAR(averaging_time({100, 20, 20, 5}, {0.25, 0.25, 0.25, 0.25}), 0.3, 1e-9);
}

TEST(Balance, UnknownLinksCountAsTheMean) {
  EXPECT_THAT(balance_load({2, std::nullopt, 1}).shares, balance_load({2, 1.5, 1}).shares);
  EXPECT_THAT(balance_load({std::nullopt, std::nullopt}).shares, ElementsAre(near(0.5), near(0.5)));
}

TEST(Balance, OnePeerSumsEverything) {
  Balance balance = balance_load({5});
  EXPECT_THAT(balance.shares, ElementsAre(1));
  EXPECT_EQ(balance.time, 0);
}

TEST(Balance, NoSplitOfRandomLinksIsFaster) {
  Random random(1);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<Bandwidth> links;
    const size_t peers = 3 + random.below(6);
    for (size_t i = 0; i < peers; ++i)
      links.push_back(i > 0 && random.below(4) == 0 ? 0 : 1 + 99 * random.uniform());
    Balance balance = balance_load(links);
    EXPECT_NEAR(std::accumulate(balance.shares.begin(), balance.shares.end(), 0.0), 1, 1e-9);
    std::vector<double> other;
    double sum = 0;
    for (const Bandwidth& link : links) sum += other.emplace_back(*link > 0 ? random.uniform() : 0);
    for (double& share : other) share /= sum;
    EXPECT_LE(balance.time, averaging_time(links, other) * (1 + 1e-9));
  }
}

TEST(Balance, NobodyWhoSumsIsAnError) {
  EXPECT_THAT([] { balance_load({0, 0}); }, ThrowsMessage<ConfigError>(HasSubstr("none of 2 peers")));
  EXPECT_THAT([] { balance_load({-1, 1}); }, ThrowsMessage<ConfigError>(HasSubstr("bandwidth -1")));
  EXPECT_THAT([] { balance_load({1.0 / 0.0, 1}); }, ThrowsMessage<ConfigError>(HasSubstr("bandwidth inf")));
}

TEST(Balance, PartsAddUpAndSmallOnesAreDropped) {
  EXPECT_THAT(integer_parts(10, {0.95, 0.05}, 2), ElementsAre(10, 0));
  EXPECT_THAT(integer_parts(3, {0.25, 0.25, 0.25, 0.25}), ElementsAre(1, 1, 1, 0));
  EXPECT_THAT(integer_parts(0, {0.5, 0.5}), ElementsAre(0, 0));
  EXPECT_THAT(integer_parts(1, {0.5, 0.5}, 100), ElementsAre(1, 0));
}

}  // namespace
}  // namespace yoke::collab
