#include "yoke/parallel/common/gather_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/comm/run_ranks.h"

namespace yoke::parallel {
namespace {

TEST(GatherJson, EveryRankHasAllDocuments) {
  comm::run_ranks(3, [](comm::Communicator& comm) {
    nlohmann::json all = gather_json({{"rank", comm.rank()}, {"name", "\xff"}}, &comm);
    ASSERT_EQ(all.size(), 3u);
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(all[static_cast<size_t>(rank)]["rank"], rank);
  });
  EXPECT_EQ(gather_json({1, 2}, nullptr)[0][1], 2);
}

TEST(GatherJson, WhatIsNoDocumentNamesItsRank) {
  EXPECT_EQ(parse_documents("1[2]", std::vector<int64_t>{1, 3})[1][0], 2);
  for (auto [text, lengths] : {std::pair{"1[2", std::vector<int64_t>{1, 2}}, {"1", {1, 1}}, {"1", {1, 0}}}) {
    EXPECT_THAT([&] { parse_documents(text, lengths); },
                ::testing::ThrowsMessage<CommError>(::testing::HasSubstr("rank 1 sent")));
  }
}

}  // namespace
}  // namespace yoke::parallel
