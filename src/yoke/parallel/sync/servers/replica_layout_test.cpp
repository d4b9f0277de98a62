#include "yoke/parallel/sync/servers/replica_layout.h"

#include <gmock/gmock.h>

#include "yoke/comm/run_ranks.h"

namespace yoke::parallel {
namespace {

using ::testing::ElementsAre;

StatePiece piece(const std::string& name, const torch::Tensor& values, int holder) {
  StatePiece one;
  one.name = name;
  one.values = values;
  one.shape = values.sizes().vec();
  one.holder = holder;
  return one;
}

TEST(ReplicaLayout, OneRankOwnsAllOfItsModel) {
  const std::vector<optim::NamedTensor> all = {{"a", torch::ones({2, 3})}, {"b", torch::ones({4})}};
  const ReplicaLayout layout(all, whole_state(all, {}, {}), nullptr);
  EXPECT_THAT(layout.tensors(), ElementsAre(6, 4));
  EXPECT_EQ(layout.end(), 10);
  EXPECT_EQ(layout.name_at(5), "a");
  EXPECT_EQ(layout.name_at(6), "b");
  EXPECT_TRUE(layout.owns("b"));
  layout.spread();
}

// Two stages with slices of "w" each, a tensor that both hold, and one that only the second has.
TEST(ReplicaLayout, WhatSeveralRanksHoldBelongsToTheFirstWhichGivesItsValues) {
  comm::run_ranks(2, [](comm::Communicator& comm) {
    const int rank = comm.rank();
    torch::Tensor slice = torch::full({2, 3}, rank + 1.0), tied = torch::full({5}, rank + 1.0),
                  last = torch::ones({7}), none = torch::ones({0});
    std::vector<optim::NamedTensor> here = {{"w", slice}, {"tied", tied}, {"empty", none}};
    if (rank == 1) here.emplace_back("last", last);
    std::vector<StatePiece> state = {piece("w", slice, 0), piece("tied", tied, rank == 0 ? 0 : -1)};
    state[0].shape = {4, 3};
    state[0].dim = 0;
    state[0].ranges = {{2 * rank, 2}};
    if (rank == 1) state.push_back(piece("last", last, 0));
    const ReplicaLayout layout(here, state, &comm);
    EXPECT_THAT(layout.tensors(), ElementsAre(6, 5, 0, 6, 7));
    EXPECT_EQ(layout.begin(), rank == 0 ? 0 : 11);
    EXPECT_EQ(layout.end(), rank == 0 ? 11 : 24);
    EXPECT_EQ(layout.owns("tied"), rank == 0);
    EXPECT_EQ(layout.name_at(10), "tied");
    EXPECT_EQ(layout.name_at(11), "w");
    EXPECT_EQ(layout.name_at(17), "last");
    layout.spread();
    EXPECT_EQ(tied.sum().item<double>(), 5);                  // of rank 0
    EXPECT_EQ(slice.sum().item<double>(), 6 * (rank + 1.0));  // its own
  });
}

}  // namespace
}  // namespace yoke::parallel
