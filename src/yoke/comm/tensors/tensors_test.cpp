#include "yoke/comm/tensors/tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/comm/run_ranks.h"

namespace yoke::comm {
namespace {

using testing::HasSubstr;

template <class Function>
std::string config_error_of(Function&& function) {
  try {
    function();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "(no ConfigError)";
}

torch::Tensor ramp(std::vector<int64_t> sizes, double from) {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  return (torch::arange(count, torch::kFloat64) + from).reshape(sizes);
}

TEST(Tensors, CommunicatorsTakeThemAsTheyAre) {
  run_ranks(3, [](Communicator& comm) {
    torch::Tensor x = torch::full({2, 2}, comm.rank() + 1.0), all = torch::empty({3});
    comm.all_reduce(x, ReduceOp::kMean, {.name = "bucket 3"}).wait();
    EXPECT_TRUE(x.eq(2).all().item<bool>());
    comm.all_gather(torch::full({1}, comm.rank() + 1.0), all).wait();
    EXPECT_TRUE(all.equal(torch::tensor({1.0f, 2.0f, 3.0f})));
    comm.broadcast(all, 0).wait();
    if (comm.rank() == 1) comm.send(all, 0).wait();
    if (comm.rank() == 0) comm.receive(all, 1).wait();
    EXPECT_THAT(config_error_of([&] { comm.all_reduce(torch::ones({2, 3}).t()); }), HasSubstr("contiguous"));
  });
}

TEST(Tensors, AllReduceLeavesTheSumInALayoutThatIsNotContiguous) {
  run_ranks(3, [](Communicator& comm) {
    torch::Tensor whole = torch::zeros({4, 6}, torch::kFloat64);
    torch::Tensor part = whole.t().slice(0, 1, 4);  // [3, 4], strided
    part.fill_(comm.rank() + 1.0);
    all_reduce(comm, part);
    EXPECT_TRUE(part.eq(6).all().item<bool>());
    EXPECT_EQ(whole.sum().item<double>(), 6.0 * 12);
  });
}

TEST(Tensors, AllReduceTakesEveryTypeThatCommunicatorsKnow) {
  run_ranks(2, [](Communicator& comm) {
    for (auto type : {torch::kFloat32, torch::kFloat64, torch::kFloat16, torch::kBFloat16, torch::kInt8,
                      torch::kUInt8, torch::kInt16, torch::kInt32, torch::kInt64}) {
      torch::Tensor x = torch::full({5}, comm.rank() + 1, type);
      all_reduce(comm, x, ReduceOp::kMax);
      EXPECT_TRUE(x.eq(2).all().item<bool>()) << x;
    }
  });
}

TEST(Tensors, OfOtherTypesAndDevicesAreRefused) {
  run_ranks(1, [](Communicator& comm) {
    EXPECT_THAT(config_error_of([&] { all_reduce(comm, torch::zeros({2}, torch::kBool)); }),
                HasSubstr("Accepted: float32"));
    EXPECT_THAT(config_error_of([&] { all_reduce(comm, torch::zeros({2}, torch::kMeta)); }),
                HasSubstr("host memory"));
    EXPECT_THAT(config_error_of([&] { buffer_of(torch::zeros({2, 3}).t()); }), HasSubstr("contiguous()"));
    EXPECT_THAT(config_error_of([&] { buffer_of(torch::Tensor()); }), HasSubstr("not defined"));
  });
}

TEST(Tensors, OfEqualSizeAndOtherShapeAreAnErrorOnEveryRank) {
  run_ranks(2, [](Communicator& comm) {
    torch::Tensor x =
        torch::zeros(comm.rank() == 0 ? std::vector<int64_t>{2, 3} : std::vector<int64_t>{3, 2});
    EXPECT_THROW(all_reduce(comm, x, ReduceOp::kSum, "weights"), CommError);
  });
}

TEST(Tensors, BroadcastAndReduceKnowTheirRoot) {
  run_ranks(3, [](Communicator& comm) {
    torch::Tensor x = ramp({2, 2}, 10.0 * comm.rank());
    broadcast(comm, x, 2);
    EXPECT_TRUE(torch::equal(x, ramp({2, 2}, 20)));
    torch::Tensor y = torch::ones({3}, torch::kFloat64);
    reduce(comm, y, 1, ReduceOp::kSum);
    if (comm.rank() == 1) {
      EXPECT_TRUE(y.eq(3).all().item<bool>());
    }
  });
}

TEST(Tensors, AllGatherJoinsAlongTheFirstDimension) {
  run_ranks(3, [](Communicator& comm) {
    torch::Tensor out = all_gather(comm, ramp({2, 2}, 4.0 * comm.rank()));
    EXPECT_TRUE(torch::equal(out, ramp({6, 2}, 0)));
    EXPECT_TRUE(
        torch::equal(all_gather(comm, torch::tensor(1.0 * comm.rank(), torch::kFloat64)), ramp({3}, 0)));
  });
}

TEST(Tensors, AllGatherTakesUnequalFirstDimensions) {
  run_ranks(3, [](Communicator& comm) {
    std::vector<int64_t> rows = {0, 3, 1};
    torch::Tensor mine = torch::full({rows[static_cast<size_t>(comm.rank())], 2}, comm.rank(), torch::kInt64);
    torch::Tensor out = all_gather(comm, mine, "rows", rows);
    EXPECT_TRUE(torch::equal(out, torch::tensor({{1, 1}, {1, 1}, {1, 1}, {2, 2}}, torch::kInt64)));
  });
}

TEST(Tensors, ReduceScatterGivesEachRankItsRows) {
  run_ranks(2, [](Communicator& comm) {
    torch::Tensor out = reduce_scatter(comm, ramp({4, 3}, 0).t().contiguous().t(), ReduceOp::kMean);
    EXPECT_TRUE(torch::equal(out, ramp({2, 3}, 6.0 * comm.rank())));
  });
}

TEST(Tensors, AllToAllTransposesRanksAndParts) {
  run_ranks(3, [](Communicator& comm) {
    torch::Tensor in = torch::arange(3, torch::kInt64) + 10 * comm.rank();
    EXPECT_TRUE(torch::equal(all_to_all(comm, in), 10 * torch::arange(3, torch::kInt64) + comm.rank()));
  });
}

TEST(Tensors, ThatCannotBeCutIntoEqualPartsAreRefused) {
  run_ranks(2, [](Communicator& comm) {
    EXPECT_THAT(config_error_of([&] {
                  reduce_scatter(comm, torch::zeros({3, 2}));
                }),
                HasSubstr("2 equal parts"));
    EXPECT_THAT(config_error_of([&] { all_to_all(comm, torch::zeros({})); }), HasSubstr("2 equal parts"));
  });
}

TEST(Tensors, SendMeetsReceiveOfTheSameTag) {
  run_ranks(2, [](Communicator& comm) {
    torch::Tensor x = ramp({2, 3}, 0), y = torch::zeros({3, 2}, torch::kFloat64).t();
    if (comm.rank() == 0) {
      send(comm, x, 1, 7, "x");
    } else {
      receive(comm, y, 0, 7, "x");
      EXPECT_TRUE(torch::equal(y, x));
    }
  });
}

}  // namespace
}  // namespace yoke::comm
