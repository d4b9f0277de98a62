#include "yoke/parallel/sync/hybrid/summation_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::parallel {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Choices with(int64_t servers, const std::string& backend = "auto") {
  Choices choices;
  choices.parallel.sync = "hybrid";
  choices.parallel.backend = backend;
  choices.hybrid.servers = servers;
  return choices;
}

TEST(SummationRanks, SpareRanksComeBehindTheWorkers) {
  EXPECT_EQ(ranks_with_spares(with(2), 4), 6);
  EXPECT_EQ(workers_beside_spares(with(2), 6), 4);
  EXPECT_EQ(ranks_with_spares(with(0, "tcp"), 2), 2);
}

TEST(SummationRanks, RefuseWhatDoesNotFit) {
  EXPECT_THAT([] { ranks_with_spares(with(3), 2); },
              ThrowsMessage<ConfigError>(HasSubstr("hybrid.servers = 3 with 2 workers")));
  EXPECT_THAT([] { ranks_with_spares(with(1), 1); },
              ThrowsMessage<ConfigError>(HasSubstr("1 worker: there is nothing to sum")));
  EXPECT_THAT([] { workers_beside_spares(with(2), 2); }, ThrowsMessage<ConfigError>(HasSubstr("0 workers")));
  EXPECT_THAT([] { ranks_with_spares(with(1, "shm"), 2); },
              ThrowsMessage<ConfigError>(HasSubstr("parallel.backend = \"shm\"")));
}

}  // namespace
}  // namespace yoke::parallel
