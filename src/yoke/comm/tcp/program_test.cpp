#include "yoke/comm/tcp/program.h"

#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::comm::tcp {
namespace {

Program exchange(int rank, int size) {
  plan::CollectiveRequest request{
      .algorithm = plan::Algorithm::kExchange, .rank = rank, .size = size, .count = 1000};
  return compile(request, plan::collective_steps(request), 4);
}

TEST(TcpProgram, AnExchangeIsMergedInOnePassWhenAllOwnMessagesAreSent) {
  Program program = exchange(1, 4);
  ASSERT_EQ(program.units.size(), 4u);  // three sends
  const Unit& merge = program.units.back();
  EXPECT_TRUE(merge.combines() && merge.all_of_them && merge.is_final);
  EXPECT_EQ(merge.peers, (std::vector<int>{0, 2, 3}));
  EXPECT_EQ(merge.waits_for, (std::vector<int>{0, 1, 2}));
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(program.units[i].waits_for.empty());
  EXPECT_EQ(program.elements_sent, 3000);
}

TEST(TcpProgram, AnExchangeOfMoreRanksThanOnePassTakesIsRefused) {
  EXPECT_EQ(exchange(0, 64).units.back().peers.size(), 63u);
  try {
    exchange(0, 65);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "an exchange among 65 ranks: at most 64. Hint: let Yoke choose the algorithm.");
  }
}

}  // namespace
}  // namespace yoke::comm::tcp
