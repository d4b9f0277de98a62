#include "yoke/comm/tensors/autograd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "yoke/base/error.h"
#include "yoke/comm/run_ranks.h"
#include "yoke/comm/tensors/test_gradcheck.h"

namespace yoke {
namespace {

using comm::Communicator;
using comm::gradient_error;
using comm::run_ranks;
using testing::HasSubstr;
using torch::Tensor;
using Inputs = std::vector<Tensor>;

constexpr double kTolerance = 1e-7;  // of a central difference in fp64

// Different on each rank, the same in each run, without ties.
Tensor numbers(const Communicator& comm, std::vector<int64_t> sizes, int which = 0) {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  Tensor i = torch::arange(count, torch::kFloat64) + 1.0 + 31.7 * comm.rank() + 7.3 * which;
  return (1.5 * torch::sin(1.37 * i)).reshape(sizes);
}

// Weighs everything differently on each rank, so that a gradient that went to the wrong place shows.
Tensor weighed(const Communicator& comm, const Tensor& x) {
  Tensor i = torch::arange(x.numel(), torch::kFloat64).reshape(x.sizes());
  return ((x * x + x) * torch::cos(i + 2.0 * comm.rank())).sum();
}

TEST(AutogradAllReduce, HasTheGradientOfEveryReduction) {
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProd})
    run_ranks(3, [&](Communicator& comm) {
      double error = gradient_error(comm, {numbers(comm, {2, 3})}, [&](Communicator& c, const Inputs& x) {
        return weighed(c, autograd::all_reduce(c, x[0] * 1.1, op, "x"));
      });
      EXPECT_LT(error, kTolerance) << to_string(op);
    });
}

TEST(AutogradAllReduce, OfAProductWithZerosIsRight) {
  run_ranks(2, [](Communicator& comm) {
    Tensor x = comm.rank() == 0 ? torch::tensor({0.0, 2.0}, torch::kFloat64)
                                : torch::tensor({3.0, 0.0}, torch::kFloat64);
    x.requires_grad_(true);
    autograd::all_reduce(comm, x, ReduceOp::kProd).sum().backward();
    Tensor wanted = 2 * (comm.rank() == 0 ? torch::tensor({3.0, 0.0}, torch::kFloat64)
                                          : torch::tensor({0.0, 2.0}, torch::kFloat64));
    EXPECT_TRUE(torch::equal(x.grad(), wanted)) << x.grad();
  });
}

TEST(AutogradAllReduce, SharesTheGradientOfATieEqually) {
  run_ranks(4, [](Communicator& comm) {
    Tensor x = torch::full({1}, comm.rank() < 2 ? 5.0 : 1.0, torch::kFloat64).requires_grad_(true);
    autograd::all_reduce(comm, x, ReduceOp::kMax).sum().backward();
    EXPECT_EQ(x.grad().item<double>(), comm.rank() < 2 ? 2.0 : 0.0);  // four losses, two holders
  });
}

TEST(AutogradAllReduce, LeavesItsInputAlone) {
  run_ranks(2, [](Communicator& comm) {
    Tensor x = torch::ones({3}, torch::kFloat64);
    EXPECT_TRUE(autograd::all_reduce(comm, x).eq(2).all().item<bool>());
    EXPECT_TRUE(x.eq(1).all().item<bool>());
  });
}

TEST(AutogradAllGather, GivesEachRankTheGradientOfItsPart) {
  run_ranks(3, [](Communicator& comm) {
    auto loss = [](Communicator& c, const Inputs& x) {
      return weighed(c, autograd::all_gather(c, x[0].t(), "x"));
    };
    EXPECT_LT(gradient_error(comm, {numbers(comm, {2, 3})}, loss), kTolerance);
    auto scalars = [](Communicator& c, const Inputs& x) {
      return weighed(c, autograd::all_gather(c, x[0].sum()));
    };
    EXPECT_LT(gradient_error(comm, {numbers(comm, {2})}, scalars), kTolerance);
  });
}

TEST(AutogradAllGather, OfUnequalPartsGivesEachRankTheGradientOfItsRows) {
  run_ranks(3, [](Communicator& comm) {
    std::vector<int64_t> rows = {2, 0, 3};
    auto loss = [&](Communicator& c, const Inputs& x) {
      Tensor mine = x[0].slice(0, 0, rows[static_cast<size_t>(c.rank())]);
      return weighed(c, autograd::all_gather(c, mine, "rows", rows));
    };
    EXPECT_LT(gradient_error(comm, {numbers(comm, {3, 2})}, loss), kTolerance);
  });
}

TEST(AutogradReduceScatter, GathersTheGradients) {
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean})
    run_ranks(2, [&](Communicator& comm) {
      auto loss = [&](Communicator& c, const Inputs& x) {
        return weighed(c, autograd::reduce_scatter(c, x[0], op, "x"));
      };
      EXPECT_LT(gradient_error(comm, {numbers(comm, {4, 2})}, loss), kTolerance);
    });
  run_ranks(1, [](Communicator& comm) {
    EXPECT_THROW(autograd::reduce_scatter(comm, torch::ones({1}), ReduceOp::kMax), ConfigError);
  });
}

TEST(AutogradAllToAll, SendsGradientsBackWhereThePartsCameFrom) {
  run_ranks(3, [](Communicator& comm) {
    auto loss = [](Communicator& c, const Inputs& x) {
      return weighed(c, autograd::all_to_all(c, x[0], "x"));
    };
    EXPECT_LT(gradient_error(comm, {numbers(comm, {3, 2})}, loss), kTolerance);
  });
}

TEST(AutogradBroadcast, SumsTheGradientsAtTheRoot) {
  run_ranks(3, [](Communicator& comm) {
    auto loss = [](Communicator& c, const Inputs& x) {
      return weighed(c, autograd::broadcast(c, x[0], 1, "x"));
    };
    EXPECT_LT(gradient_error(comm, {numbers(comm, {2, 2})}, loss), kTolerance);
  });
}

TEST(AutogradSendReceive, CarriesGradientsBackAlongAChainOfRanks) {
  run_ranks(3, [](Communicator& comm) {
    auto loss = [](Communicator& c, const Inputs& x) {
      Tensor h = x[0];
      if (c.rank() > 0) h = x[0] * autograd::receive(c, {2, 2}, x[0].options(), c.rank() - 1, 3, "h");
      if (c.rank() < c.size() - 1) return autograd::send(c, h.t(), c.rank() + 1, 3, "h");
      return weighed(c, h);
    };
    EXPECT_LT(gradient_error(comm, {numbers(comm, {2, 2})}, loss), kTolerance);
  });
}

TEST(AutogradSendReceive, CarriesGradientsOfAQuestionAndItsAnswer) {
  run_ranks(2, [](Communicator& comm) {
    auto loss = [](Communicator& c, const Inputs& x) {
      if (c.rank() == 0) {
        Tensor sent = autograd::send(c, x[0], 1, 0, "question");
        return weighed(c, autograd::receive(c, {3}, x[0].options(), 1, 0, "answer", sent));
      }
      Tensor question = autograd::receive(c, {3}, x[0].options(), 0, 0, "question");
      return autograd::send(c, question * x[0], 0, 0, "answer");
    };
    EXPECT_LT(gradient_error(comm, {numbers(comm, {3})}, loss), kTolerance);
  });
}

TEST(AutogradSendReceive, RefusesTagsThatGradientsUseAndMovesIntegersWithoutGradient) {
  run_ranks(2, [](Communicator& comm) {
    int other = 1 - comm.rank();
    EXPECT_THROW(autograd::send(comm, torch::ones({1}), other, autograd::kGradientTag), ConfigError);
    EXPECT_THROW(autograd::receive(comm, {1}, torch::kFloat32, other, -1), ConfigError);
    if (comm.rank() == 0) {
      autograd::send(comm, torch::full({2}, 4, torch::kInt64), 1);
    } else {
      Tensor got = autograd::receive(comm, {2}, torch::kInt64, 0);
      EXPECT_TRUE(got.eq(4).all().item<bool>());
      EXPECT_FALSE(got.requires_grad());
    }
  });
}

// A small net whose layers communicate in several ways: order and names must agree on all ranks in backward
// too.
TEST(AutogradCollectives, ComposeInOneGraph) {
  run_ranks(2, [](Communicator& comm) {
    auto loss = [](Communicator& c, const Inputs& x) {
      Tensor w = autograd::broadcast(c, x[1], 0, "w");
      Tensor h = torch::tanh(autograd::all_gather(c, x[0], "x").matmul(w));
      Tensor swapped = autograd::all_to_all(c, h, "h");
      Tensor parts = autograd::reduce_scatter(c, swapped * h, ReduceOp::kMean, "parts");
      return weighed(c, autograd::all_reduce(c, parts, ReduceOp::kSum, "end"));
    };
    EXPECT_LT(gradient_error(comm, {numbers(comm, {2, 3}), numbers(comm, {3, 3}, 1)}, loss), 1e-6);
  });
}

TEST(AutogradCollectives, RefuseASecondDerivative) {
  run_ranks(2, [](Communicator& comm) {
    Tensor x = torch::ones({2}, torch::kFloat64).requires_grad_(true);
    Tensor y = autograd::all_reduce(comm, x, ReduceOp::kSum, "twice").pow(2).sum();
    std::string told;
    try {
      torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true);
    } catch (const std::exception& error) {
      told = error.what();
    }
    EXPECT_THAT(told, HasSubstr("'twice'"));
    EXPECT_THAT(told, HasSubstr("no second derivative"));
  });
}

}  // namespace
}  // namespace yoke
