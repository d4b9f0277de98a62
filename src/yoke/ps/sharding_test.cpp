#include "yoke/ps/sharding.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/base/random.h"

namespace yoke::ps {
namespace {

TEST(Sharding, GroupsSmallTensorsAndCutsLargeOnes) {
  std::vector<int64_t> tensors = {10, 20, 30, 1000, 5};
  Sharding sharding(tensors, {.servers = 2, .element_bytes = 4, .range_bytes = 400});
  std::vector<Range> ranges = sharding.ranges();
  EXPECT_EQ(ranges[0].count, 60);  // the three small ones
  for (size_t i = 1; i < ranges.size(); ++i) EXPECT_LE(ranges[i].count, 105);
  EXPECT_EQ(sharding.elements(), 1065);
}

TEST(Sharding, CoversEverythingOnceAndBalancesBytes) {
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> tensors(1 + random.below(30));
    for (int64_t& count : tensors) count = static_cast<int64_t>(random.below(5000));
    tensors.push_back(1);
    int servers = 1 + static_cast<int>(random.below(5));
    int64_t most = 64 + static_cast<int64_t>(random.below(4000));
    Sharding sharding(tensors, {.servers = servers, .element_bytes = 1, .range_bytes = most});
    int64_t at = 0;
    for (const Range& range : sharding.ranges()) {
      EXPECT_EQ(range.begin, at);
      EXPECT_GT(range.count, 0);
      EXPECT_LE(range.count, most);
      EXPECT_EQ(sharding.ranges()[sharding.range_at(range.begin)], range);
      EXPECT_EQ(sharding.ranges()[sharding.range_at(range.end() - 1)], range);
      at = range.end();
    }
    std::vector<int64_t> loads;
    for (int server = 0; server < servers; ++server) loads.push_back(sharding.elements_of(server));
    auto [low, high] = std::minmax_element(loads.begin(), loads.end());
    EXPECT_LE(*high - *low, most);
  }
}

TEST(Sharding, CutsBetweenKeys) {
  std::vector<int64_t> tensors = {1000};
  Sharding sharding(tensors, {.servers = 3, .element_bytes = 4, .range_bytes = 100, .align = 8});
  for (const Range& range : sharding.ranges()) EXPECT_EQ(range.begin % 8, 0);
}

TEST(Sharding, RefusesNothingToShare) {
  std::vector<int64_t> none, one = {1};
  EXPECT_THROW(Sharding(none, {}), ConfigError);
  EXPECT_THROW(Sharding(one, {.servers = 0}), ConfigError);
  EXPECT_THROW(Sharding(one, {.range_bytes = 3}), ConfigError);
}

}  // namespace
}  // namespace yoke::ps
