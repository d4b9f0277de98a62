#include "yoke/comm/modules/traffic.h"

#include <gtest/gtest.h>

namespace yoke::comm {
namespace {

using plan::Algorithm;
using plan::Collective;

Operation operation(Collective op, int64_t in, int64_t out, int root = 0) {
  static float memory[1];
  Operation o;
  o.op = op;
  o.root = root;
  o.input = ConstBuffer(memory, in, DataType::kFloat32);
  o.output = Buffer(memory, out, DataType::kFloat32);
  return o;
}

TEST(Traffic, OfAllReduceIsTheRingsOnEveryRank) {
  for (int size : {2, 3, 4, 7})
    for (int64_t count : {int64_t{0}, int64_t{1}, int64_t{10}, int64_t{1000}})
      for (int rank = 0; rank < size; rank++) {
        plan::CollectiveRequest request{.op = Collective::kAllReduce, .algorithm = Algorithm::kRing};
        request.rank = rank;
        request.size = size;
        request.count = count;
        plan::Traffic ring = plan::traffic_of(plan::collective_steps(request));
        Counters c = payload_of(operation(Collective::kAllReduce, count, count), rank, size);
        EXPECT_EQ(c.bytes_sent, 4 * ring.elements_sent)
            << size << " ranks, " << count << " elements, rank " << rank;
      }
}

TEST(Traffic, WhatIsSentIsReceivedBySomebody) {
  constexpr int kSize = 5;
  std::vector<Operation> all = {
      operation(Collective::kAllReduce, 13, 13),    operation(Collective::kReduce, 13, 13, 3),
      operation(Collective::kReduceScatter, 15, 3), operation(Collective::kAllGather, 3, 15),
      operation(Collective::kAllToAll, 15, 15),     operation(Collective::kBroadcast, 13, 13, 2),
      operation(Collective::kGather, 3, 15, 1),     operation(Collective::kScatter, 15, 3, 4),
      operation(Collective::kBarrier, 0, 0)};
  all.push_back(operation(Collective::kAllGather, 3, 15));
  all.back().parts = {0, 1, 2, 4, 8};
  for (const Operation& o : all) {
    Counters sum;
    for (int rank = 0; rank < kSize; rank++) sum += payload_of(o, rank, kSize);
    EXPECT_EQ(sum.bytes_sent, sum.bytes_received) << plan::to_string(o.op);
    EXPECT_EQ(sum.operations, kSize);
  }
}

TEST(Traffic, OfOneRankIsNothing) {
  Counters c = payload_of(operation(Collective::kAllReduce, 13, 13), 0, 1);
  EXPECT_EQ(c.bytes_sent, 0);
  EXPECT_EQ(c.messages_sent, 0);
  EXPECT_EQ(c.operations, 1);
}

TEST(Traffic, OfUnequalPartsLeavesOutTheOwnPart) {
  Operation o = operation(Collective::kAllGather, 2, 15);
  o.parts = {0, 1, 2, 4, 8};
  EXPECT_EQ(payload_of(o, 2, 5).bytes_received, 4 * (15 - 2));
}

}  // namespace
}  // namespace yoke::comm
