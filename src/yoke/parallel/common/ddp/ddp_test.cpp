// Every option against one device on the whole batch, in fp64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "yoke/base/error.h"
#include "yoke/compute/recompute.h"
#include "yoke/parallel/common/ddp/ddp_test_net.h"

namespace yoke::parallel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kTolerance = 1e-10;

std::shared_ptr<NetImpl> start() {
  torch::manual_seed(7);
  return std::make_shared<NetImpl>();
}

// All ranks the same bits, and one device's numbers.
void expect_parity(const std::vector<torch::Tensor>& ranks, const torch::Tensor& alone) {
  for (const torch::Tensor& one : ranks) {
    EXPECT_TRUE(torch::equal(one, ranks[0]));
    EXPECT_LT(difference(one, alone), kTolerance);
  }
}

TEST(Ddp, EqualsOneDeviceForAnyNumberOfRanks) {
  auto net = start();
  torch::Tensor alone = train_alone(net);
  for (int size : {1, 2, 3, 4}) expect_parity(train_on_ranks(net, size), alone);
}

TEST(Ddp, EqualsOneDeviceWithEveryOption) {
  auto net = start();
  torch::Tensor alone = train_alone(net);
  std::vector<DdpOptions> all(7);
  all[0].bucket_bytes = all[0].first_bucket_bytes = 1;  // a bucket for each gradient
  all[1].delay_allreduce = true;
  all[2].find_unused = true;
  all[3].static_graph = true;
  all[4].gradient_as_bucket_view = false;
  all[5].broadcast_buffers = true;
  all[6].bucket_bytes = 100;
  for (const DdpOptions& options : all) expect_parity(train_on_ranks(net, 2, options), alone);
}

TEST(Ddp, SumsWhenToldTo) {
  auto net = start();
  DdpOptions options;
  options.reduction = "sum";
  RankStep<NetImpl> step = [](NetImpl& one, DistributedDataParallel& ddp, const Samples& part) {
    (loss_of(one.forward(part.x), part.y) / ddp.comm().size()).backward();
  };
  expect_parity(train_on_ranks(net, 3, options, step), train_alone(net));
}

TEST(Ddp, StartsFromRankZero) {
  auto net = start();
  torch::Tensor alone = train_alone(net, 1);
  std::vector<torch::Tensor> results(2);
  comm::run_ranks(2, [&](comm::Communicator& comm) {
    auto own = std::dynamic_pointer_cast<NetImpl>(net->clone());
    if (comm.rank() == 1) {
      torch::NoGradGuard no_grad;
      for (auto& parameter : own->parameters()) parameter.add_(1.0);
    }
    DistributedDataParallel ddp(*own, comm);
    auto optimizer = optimizer_for(*own);
    plain_step(*own, ddp, slice(batch_of_step(0), comm.rank(), 2));
    optimizer.step();
    results[static_cast<size_t>(comm.rank())] = flat_parameters(*own);
  });
  expect_parity(results, alone);
}

TEST(Ddp, AccumulatesWithoutCommunicatingUnderNoSync) {
  auto net = start();
  std::vector<int64_t> operations(2);
  RankStep<NetImpl> step = [&](NetImpl& one, DistributedDataParallel& ddp, const Samples& part) {
    int64_t before = ddp.comm().counters().operations;
    {
      auto local = ddp.no_sync();
      for (int64_t i = 0; i < 2; ++i) {
        Samples micro = slice(part, i, 3);
        (loss_of(one.forward(micro.x), micro.y) / 3).backward();
      }
    }
    EXPECT_EQ(ddp.comm().counters().operations, before);
    Samples micro = slice(part, 2, 3);
    (loss_of(one.forward(micro.x), micro.y) / 3).backward();
    EXPECT_GT(ddp.comm().counters().operations, before);
  };
  torch::Tensor alone = train_alone(net);
  for (bool view : {true, false}) {
    DdpOptions options;
    options.gradient_as_bucket_view = view;
    expect_parity(train_on_ranks(net, 2, options, step), alone);
  }
}

TEST(Ddp, TheGuardOfNoSyncMayBeMoved) {
  auto net = start();
  RankStep<NetImpl> step = [](NetImpl& one, DistributedDataParallel& ddp, const Samples& part) {
    std::optional<DistributedDataParallel::NoSync> local;
    const int64_t before = ddp.comm().counters().operations;
    for (int64_t i = 0; i < 3; ++i) {
      if (i < 2)
        local = ddp.no_sync();  // the second one replaces the first, and is no deeper than it
      else
        local.reset();
      Samples micro = slice(part, i, 3);
      (loss_of(one.forward(micro.x), micro.y) / 3).backward();
      EXPECT_EQ(ddp.comm().counters().operations > before, i == 2);
    }
  };
  expect_parity(train_on_ranks(net, 2, {}, step), train_alone(net));
}

TEST(Ddp, SeveralBackwardPassesAddUp) {
  auto net = start();
  RankStep<NetImpl> step = [](NetImpl& one, DistributedDataParallel&, const Samples& part) {
    torch::Tensor output = one.forward(part.x);
    (0.25 * loss_of(output, part.y)).backward({}, /*keep_graph=*/true);
    (0.75 * loss_of(output, part.y)).backward();
  };
  torch::Tensor alone = train_alone(net);
  expect_parity(train_on_ranks(net, 2, {}, step), alone);
  DdpOptions sum;
  sum.reduction = "sum";
  RankStep<NetImpl> halved = [&](NetImpl& one, DistributedDataParallel&, const Samples& part) {
    torch::Tensor output = one.forward(part.x);
    (0.125 * loss_of(output, part.y)).backward({}, /*keep_graph=*/true);
    (0.375 * loss_of(output, part.y)).backward();
  };
  expect_parity(train_on_ranks(net, 2, sum, halved), alone);
}

TEST(Ddp, ZeroedInPlaceOrTakenAwayGradientsAreTheSame) {
  auto net = start();
  std::vector<std::shared_ptr<NetImpl>> nets;
  for (int rank = 0; rank < 2; ++rank) nets.push_back(std::dynamic_pointer_cast<NetImpl>(net->clone()));
  std::vector<torch::Tensor> results(2);
  comm::run_ranks(2, [&](comm::Communicator& comm) {
    auto at = static_cast<size_t>(comm.rank());
    DistributedDataParallel ddp(*nets[at], comm);
    auto optimizer = optimizer_for(*nets[at]);
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad(/*set_to_none=*/step % 2 == 0);
      plain_step(*nets[at], ddp, slice(batch_of_step(step), comm.rank(), 2));
      optimizer.step();
    }
    results[at] = flat_parameters(*nets[at]);
  });
  expect_parity(results, train_alone(net));
}

// ---- graphs that are not plain ----

struct OddNetImpl : torch::nn::Cloneable<OddNetImpl> {
  OddNetImpl() { reset(); }
  void reset() override {
    twice = register_module("twice", torch::nn::Linear(6, 6));
    unused = register_module("unused", torch::nn::Linear(6, 6));
    frozen = register_module("frozen", torch::nn::Linear(6, 6));
    last = register_module("last", torch::nn::Linear(6, 3));
    for (auto& parameter : frozen->parameters()) parameter.requires_grad_(false);
    to(torch::kFloat64);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    auto layer = [this](const std::vector<torch::Tensor>& in) {
      return std::vector<torch::Tensor>{torch::tanh(twice(in[0]))};
    };
    torch::Tensor y = x;
    for (int i = 0; i < 2; ++i) y = recomputed ? recompute(layer, {y})[0] : layer({y})[0];
    return last(torch::tanh(frozen(y)));
  }
  torch::nn::Linear twice{nullptr}, unused{nullptr}, frozen{nullptr}, last{nullptr};
  bool recomputed = false;
};

std::shared_ptr<OddNetImpl> odd_start(bool recomputed) {
  torch::manual_seed(8);
  auto net = std::make_shared<OddNetImpl>();
  net->recomputed = recomputed;
  return net;
}

TEST(Ddp, UsedTwiceFrozenUnusedAndRecomputedParametersWork) {
  for (bool recomputed : {false, true}) {
    auto net = odd_start(recomputed);
    torch::Tensor alone = train_alone(net);
    for (bool fixed : {false, true}) {
      DdpOptions options;
      options.first_bucket_bytes = options.bucket_bytes = 300;
      (fixed ? options.static_graph : options.find_unused) = true;
      expect_parity(train_on_ranks(net, 2, options), alone);
    }
  }
}

TEST(Ddp, WhatIsUsedOnOneRankOnlyIsAveragedForAll) {
  auto net = odd_start(false);
  DdpOptions options;
  options.find_unused = true;
  std::vector<torch::Tensor> gradients(2);
  RankStep<OddNetImpl> step = [&](OddNetImpl& one, DistributedDataParallel& ddp, const Samples& part) {
    torch::Tensor output = one.forward(part.x).sum();
    if (ddp.comm().rank() == 1) output = output + one.unused(part.x).sum();
    output.backward();
    gradients[static_cast<size_t>(ddp.comm().rank())] = one.unused->weight.grad().clone();
  };
  train_on_ranks(net, 2, options, step, 3);
  EXPECT_TRUE(torch::equal(gradients[0], gradients[1]));
  torch::Tensor alone = slice(batch_of_step(2), 1, 2).x.sum(0).expand({6, 6}) / 2;
  EXPECT_LT(difference(gradients[0], alone), kTolerance);
}

TEST(Ddp, AnUnusedParameterThatNobodyAllowedIsNamed) {
  auto net = odd_start(false);
  try {
    train_on_ranks(net, 2);
    FAIL() << "went through";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("unused.weight and 1 more"), HasSubstr("ddp.find_unused")));
  }
}

TEST(Ddp, AnotherModelOnOneRankIsShownWithBothSides) {
  try {
    comm::run_ranks(3, [](comm::Communicator& comm) {
      torch::nn::Linear layer(torch::nn::LinearOptions(4, comm.rank() == 2 ? 5 : 3));
      DistributedDataParallel ddp(*layer, comm);
    });
    FAIL() << "went through";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0 has parameter weight [3, 4] Float"),
                                    HasSubstr("rank 2 has parameter weight [5, 4] Float")));
  }
}

// ---- uneven inputs ----

constexpr int kUneven[] = {1, 5, 3};  // steps of each rank

std::vector<torch::Tensor> train_unevenly(const std::shared_ptr<NetImpl>& net, const DdpOptions& options) {
  std::vector<std::shared_ptr<NetImpl>> nets;
  for (int rank = 0; rank < 3; ++rank) nets.push_back(std::dynamic_pointer_cast<NetImpl>(net->clone()));
  std::vector<torch::Tensor> results(3);
  comm::run_ranks(3, [&](comm::Communicator& comm) {
    auto at = static_cast<size_t>(comm.rank());
    DistributedDataParallel ddp(*nets[at], comm, options);
    auto optimizer = optimizer_for(*nets[at]);
    ddp.join([&] {
      for (int step = 0; step < kUneven[at]; ++step) {
        optimizer.zero_grad();
        plain_step(*nets[at], ddp, slice(batch_of_step(step), comm.rank(), 3));
        optimizer.step();
      }
    });
    results[at] = flat_parameters(*nets[at]);
  });
  return results;
}

// One device, on what the ranks with data have in each step.
torch::Tensor uneven_alone(const std::shared_ptr<NetImpl>& net) {
  auto alone = std::dynamic_pointer_cast<NetImpl>(net->clone());
  auto optimizer = optimizer_for(*alone);
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    torch::Tensor loss = torch::zeros({}, torch::kFloat64);
    int active = 0;
    for (int rank = 0; rank < 3; ++rank) {
      if (step >= kUneven[rank]) continue;
      Samples part = slice(batch_of_step(step), rank, 3);
      loss = loss + loss_of(alone->forward(part.x), part.y);
      ++active;
    }
    (loss / active).backward();
    optimizer.step();
  }
  return flat_parameters(*alone);
}

TEST(Ddp, ARankThatRunsOutOfDataHoldsNobodyUp) {
  auto net = start();
  expect_parity(train_unevenly(net, {}), uneven_alone(net));
}

TEST(Ddp, ARankThatRunsOutOfDataShadowsEveryHook) {
  auto net = start();
  torch::Tensor alone = uneven_alone(net);
  double moved = difference(alone, flat_parameters(*net));
  // How far from one device, as a share of how far training went. The last three leave most out, and owe it.
  const std::pair<const char*, double> hooks[] = {{"fp16", 0.01},   {"bf16", 0.05},  {"int8", 0.1},
                                                  {"topk:1", 1e-9}, {"topk:0.1", 2}, {"sign", 2},
                                                  {"powersgd:2", 2}};
  for (const auto& [hook, share] : hooks) {
    DdpOptions options;
    options.hook = hook;
    std::vector<torch::Tensor> ranks = train_unevenly(net, options);
    for (const torch::Tensor& one : ranks) {
      EXPECT_TRUE(torch::equal(one, ranks[0])) << hook;
      EXPECT_LT(difference(one, alone), share * moved) << hook;
    }
  }
}

// ---- sparse gradients ----

TEST(Ddp, SparseEmbeddingsStaySparseAndEqualOneDevice) {
  torch::manual_seed(3);
  torch::nn::Embedding table(torch::nn::EmbeddingOptions(10, 4).sparse(true));
  table->to(torch::kFloat64);
  torch::Tensor words = torch::tensor({1, 2, 2, 7, 9, 1}, torch::kInt64);
  torch::Tensor start_weight = table->weight.detach().clone();
  auto loss = [](torch::nn::Embedding& one, const torch::Tensor& in) { return one(in).square().sum(); };
  (loss(table, words) / 2).backward();
  torch::Tensor expected = table->weight.grad().to_dense();
  comm::run_ranks(2, [&](comm::Communicator& comm) {
    torch::nn::Embedding own(torch::nn::EmbeddingOptions(10, 4).sparse(true)._weight(start_weight.clone()));
    DistributedDataParallel ddp(*own, comm);
    for (int step = 0; step < 2; ++step) {
      own->zero_grad();
      loss(own, words.narrow(0, comm.rank() * 3, 3)).backward();
      EXPECT_TRUE(own->weight.grad().is_sparse());
      EXPECT_LT(difference(own->weight.grad().to_dense(), expected), kTolerance);
    }
  });
}

// ---- what it reports ----

TEST(Ddp, CountsBytesAsTheFormulaSays) {
  auto net = start();
  int64_t bytes = 0;
  for (const auto& parameter : net->parameters()) bytes += static_cast<int64_t>(parameter.nbytes());
  RankStep<NetImpl> step = [&](NetImpl& one, DistributedDataParallel& ddp, const Samples& part) {
    plain_step(one, ddp, part);
    EXPECT_EQ(ddp.hook()->bytes_uncompressed() % bytes, 0);
    EXPECT_EQ(ddp.last_step().buckets.size(), 1u);
    EXPECT_EQ(ddp.last_step().buckets[0].bytes, bytes);
    EXPECT_EQ(ddp.last_step().bytes_saved, 0);
  };
  train_on_ranks(net, 4, {}, step);
}

TEST(Ddp, WaitsForNoMoreCommunicationThanThereIs) {
  RankStep<NetImpl> step = [&](NetImpl& one, DistributedDataParallel& ddp, const Samples& part) {
    plain_step(one, ddp, part);
    EXPECT_LE(ddp.last_step().exposed_seconds, ddp.last_step().comm_seconds);
  };
  DdpOptions options;
  options.gradient_as_bucket_view = false;
  train_on_ranks(start(), 2, options, step, 20);
}

TEST(Ddp, TellsWhatAHookSavedInEachStep) {
  auto net = start();
  int64_t bytes = 0;
  for (const auto& parameter : net->parameters()) bytes += static_cast<int64_t>(parameter.nbytes());
  DdpOptions options;
  options.hook = "fp16";
  RankStep<NetImpl> step = [&](NetImpl& one, DistributedDataParallel& ddp, const Samples& part) {
    plain_step(one, ddp, part);
    EXPECT_EQ(ddp.last_step().bytes_saved, bytes * 3 / 4);  // fp64 here
  };
  train_on_ranks(net, 2, options, step, 3);
}

TEST(Ddp, MeasuresTheGradientsBeforeAndAfterTheReduction) {
  auto net = start();
  RankStep<NetImpl> step = [&](NetImpl& one, DistributedDataParallel& ddp, const Samples& part) {
    ddp.measure_noise();
    plain_step(one, ddp, part);
    double after = 0;
    for (const auto& parameter : one.parameters()) after += parameter.grad().square().sum().item<double>();
    EXPECT_NEAR(ddp.last_step().big_norm2 / after, 1, 1e-6);
    EXPECT_GT(ddp.last_step().small_norm2, ddp.last_step().big_norm2);
  };
  train_on_ranks(net, 4, {}, step);
}

TEST(Ddp, LeavesTheModuleAloneWhenItEnds) {
  auto net = start();
  comm::run_ranks(2, [&](comm::Communicator& comm) {
    auto own = std::dynamic_pointer_cast<NetImpl>(net->clone());
    { DistributedDataParallel ddp(*own, comm); }
    int64_t before = comm.counters().operations;
    Samples part = slice(batch_of_step(0), comm.rank(), 2);
    loss_of(own->forward(part.x), part.y).backward();
    EXPECT_EQ(comm.counters().operations, before);
  });
}

}  // namespace
}  // namespace yoke::parallel::testing
