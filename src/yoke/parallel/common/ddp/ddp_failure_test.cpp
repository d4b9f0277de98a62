// A backward() that throws on one rank, is caught there and repeated: right averages, or an error on all
// ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <stdexcept>

#include "yoke/base/error.h"
#include "yoke/compute/recompute.h"
#include "yoke/parallel/common/ddp/ddp_test_net.h"

namespace yoke::parallel::testing {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<NetImpl> failing_start() {
  torch::manual_seed(7);
  return std::make_shared<NetImpl>();
}

// Gradients of the last layers come, then it throws: as when memory runs out half-way.
void fail_half_way(NetImpl& net, const Samples& part) {
  torch::Tensor hidden = torch::tanh(net.first(part.x));
  hidden.register_hook([](const torch::Tensor&) -> torch::Tensor { throw std::runtime_error("no memory"); });
  EXPECT_THROW(loss_of(net.last(torch::tanh(net.second(hidden))), part.y).backward(), std::exception);
}

// Rank 1 fails in step `bad` and tries again; all steps equal one device's.
RankStep<NetImpl> failing_in(int bad, std::function<void(NetImpl&, const Samples&)> fail = fail_half_way) {
  auto steps = std::make_shared<std::array<int, 2>>();
  return [=](NetImpl& net, DistributedDataParallel& ddp, const Samples& part) {
    int rank = ddp.comm().rank();
    if ((*steps)[static_cast<size_t>(rank)]++ == bad && rank == 1) {
      for (int tries = 0; tries < 2; ++tries) {
        fail(net, part);
        net.zero_grad(/*set_to_none=*/tries == 0);
      }
    }
    plain_step(net, ddp, part);
  };
}

void expect_as_alone(const std::vector<torch::Tensor>& ranks, const torch::Tensor& alone) {
  for (const torch::Tensor& one : ranks) {
    EXPECT_TRUE(torch::equal(one, ranks[0]));
    EXPECT_LT(difference(one, alone), 1e-10);
  }
}

TEST(DdpFailure, TheFirstBackwardMayBeRepeated) {
  auto net = failing_start();
  DdpOptions options;
  options.bucket_bytes = options.first_bucket_bytes = 1;
  expect_as_alone(train_on_ranks(net, 2, options, failing_in(0)), train_alone(net));
}

TEST(DdpFailure, ALaterBackwardMayBeRepeatedWhenNothingWasSent) {
  auto net = failing_start();
  torch::Tensor alone = train_alone(net);
  std::vector<DdpOptions> all(5);  // the last: one bucket
  all[0].delay_allreduce = true;
  all[0].bucket_bytes = all[0].first_bucket_bytes = 1;
  all[1].find_unused = true;
  all[2].static_graph = true;
  all[3].gradient_as_bucket_view = false;
  for (const DdpOptions& options : all)
    expect_as_alone(train_on_ranks(net, 2, options, failing_in(3)), alone);
}

TEST(DdpFailure, AForwardThatThrowsMayBeRepeated) {
  auto net = failing_start();
  auto fail = [](NetImpl& one, const Samples& part) {
    EXPECT_THROW(one.forward(part.x.narrow(1, 0, 2)), std::exception);
  };
  DdpOptions options;
  options.bucket_bytes = options.first_bucket_bytes = 1;
  expect_as_alone(train_on_ranks(net, 2, options, failing_in(3, fail)), train_alone(net));
}

TEST(DdpFailure, ABackwardUnderNoSyncMayBeRepeated) {
  auto net = failing_start();
  DdpOptions options;
  options.bucket_bytes = options.first_bucket_bytes = 1;
  RankStep<NetImpl> step = [](NetImpl& one, DistributedDataParallel& ddp, const Samples& part) {
    {
      auto local = ddp.no_sync();
      if (ddp.comm().rank() == 1) fail_half_way(one, part);
    }
    one.zero_grad();
    plain_step(one, ddp, part);
  };
  expect_as_alone(train_on_ranks(net, 2, options, step), train_alone(net));
}

TEST(DdpFailure, ABackwardInsideOfJoinMayBeRepeated) {
  auto net = failing_start();
  std::vector<torch::Tensor> results(2);
  comm::run_ranks(2, [&](comm::Communicator& comm) {
    auto own = std::dynamic_pointer_cast<NetImpl>(net->clone());
    DistributedDataParallel ddp(*own, comm);
    auto optimizer = optimizer_for(*own);
    ddp.join([&] {
      for (int step = 0; step < kSteps; ++step) {
        optimizer.zero_grad();
        Samples part = slice(batch_of_step(step), comm.rank(), 2);
        if (comm.rank() == 1 && step % 2 == 1) fail_half_way(*own, part);
        optimizer.zero_grad();
        plain_step(*own, ddp, part);
        optimizer.step();
      }
    });
    results[static_cast<size_t>(comm.rank())] = flat_parameters(*own);
  });
  expect_as_alone(results, train_alone(net));
}

// A recomputed part has a backward pass of its own, inside.
TEST(DdpFailure, ARecomputedPartThatThrowsMayBeRepeated) {
  auto net = failing_start();
  auto forward = [](NetImpl& one, const Samples& part, bool throws) {
    auto top = [&one, throws](const std::vector<torch::Tensor>& in) {
      torch::Tensor hidden = torch::tanh(one.second(in[0]));
      if (throws && in_recomputation())
        hidden.register_hook(
            [](const torch::Tensor&) -> torch::Tensor { throw std::runtime_error("no memory"); });
      return std::vector<torch::Tensor>{one.last(hidden)};
    };
    return loss_of(recompute(top, {torch::tanh(one.first(part.x))})[0], part.y);
  };
  RankStep<NetImpl> step = [&](NetImpl& one, DistributedDataParallel& ddp, const Samples& part) {
    if (ddp.comm().rank() == 1) {
      EXPECT_THROW(forward(one, part, true).backward(), std::exception);
      one.zero_grad();
    }
    forward(one, part, false).backward();
  };
  expect_as_alone(train_on_ranks(net, 2, {}, step), train_alone(net));
}

TEST(DdpFailure, WhatWasSentCannotBeRepeatedAndAllRanksHearOfIt) {
  auto net = failing_start();
  std::vector<std::string> messages(3);
  comm::run_ranks(3, [&](comm::Communicator& comm) {
    DdpOptions options;
    options.bucket_bytes = options.first_bucket_bytes = 1;
    auto own = std::dynamic_pointer_cast<NetImpl>(net->clone());
    DistributedDataParallel ddp(*own, comm, options);
    try {
      for (int step = 0; step < kSteps; ++step) {
        own->zero_grad();
        Samples part = slice(batch_of_step(step), comm.rank(), 3);
        if (step == 2 && comm.rank() == 1) fail_half_way(*own, part);
        own->zero_grad(/*set_to_none=*/false);
        plain_step(*own, ddp, part);
        EXPECT_LT(step, 2) << "rank " << comm.rank();
      }
    } catch (const CommError& error) {
      messages[static_cast<size_t>(comm.rank())] = error.what();
    }
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message, HasSubstr("rank 1 called all_reduce")) << message;
  for (const std::string& message : messages)
    EXPECT_THAT(message, HasSubstr("after one that failed half-way"));
}

TEST(DdpFailure, AllRanksThatFailAtTheSamePlaceHearOfItToo) {
  auto net = failing_start();
  comm::run_ranks(2, [&](comm::Communicator& comm) {
    DdpOptions options;
    options.bucket_bytes = options.first_bucket_bytes = 1;
    auto own = std::dynamic_pointer_cast<NetImpl>(net->clone());
    DistributedDataParallel ddp(*own, comm, options);
    Samples part = slice(batch_of_step(0), comm.rank(), 2);
    plain_step(*own, ddp, part);
    fail_half_way(*own, part);
    for (int tries = 0; tries < 2; ++tries)
      EXPECT_THAT([&] { plain_step(*own, ddp, part); },
                  ::testing::ThrowsMessage<CommError>(HasSubstr("buckets of gradients had been sent")));
  });
}

// What is reduced as soon as it is launched shows everything that writes to a bucket afterwards.
struct EagerHook : CommHook {
  bool advance(GradientBucket& bucket, int) override {
    bucket.comm
        ->all_reduce({bucket.flat.data_ptr(), bucket.flat.numel(), DataType::kFloat64}, ReduceOp::kMean)
        .wait();
    return false;
  }
};

struct SometimesNetImpl : torch::nn::Cloneable<SometimesNetImpl> {
  SometimesNetImpl() { reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(6, 6));
    sometimes = register_module("sometimes", torch::nn::Linear(6, 6));
    to(torch::kFloat64);
  }
  torch::nn::Linear first{nullptr}, sometimes{nullptr};
};

TEST(Ddp, AStaticGraphAveragesWhatOneRankUses) {
  torch::manual_seed(8);
  auto net = std::make_shared<SometimesNetImpl>();
  for (bool view : {true, false}) {
    DdpOptions options;
    options.static_graph = true;
    options.gradient_as_bucket_view = view;
    options.bucket_bytes = options.first_bucket_bytes = 1;
    std::vector<torch::Tensor> gradients(2);
    RankStep<SometimesNetImpl> step = [&](SometimesNetImpl& one, DistributedDataParallel& ddp,
                                          const Samples& part) {
      if (ddp.last_step().buckets.empty()) ddp.set_hook(std::make_shared<EagerHook>());
      torch::Tensor output = one.first(part.x);
      if (ddp.comm().rank() == 1) output = one.sometimes(output);
      output.sum().backward();
      std::vector<torch::Tensor> all;
      for (const torch::Tensor& parameter : one.sometimes->parameters())
        all.push_back(parameter.grad().reshape({-1}));
      gradients[static_cast<size_t>(ddp.comm().rank())] = torch::cat(all);
    };
    train_on_ranks(net, 2, options, step, 3);
    EXPECT_TRUE(torch::equal(gradients[0], gradients[1])) << view;
    EXPECT_GT(gradients[0].abs().max().item<double>(), 0);
  }
}

TEST(Ddp, FindUnusedAveragesWhatOnlyNoSyncUsed) {
  torch::manual_seed(8);
  auto net = std::make_shared<SometimesNetImpl>();
  for (bool view : {true, false}) {
    DdpOptions options;
    options.find_unused = true;
    options.gradient_as_bucket_view = view;
    std::vector<torch::Tensor> gradients(2);
    RankStep<SometimesNetImpl> step = [&](SometimesNetImpl& one, DistributedDataParallel& ddp,
                                          const Samples& part) {
      {
        auto local = ddp.no_sync();
        one.sometimes(one.first(part.x)).sum().backward();
      }
      one.first(part.x).sum().backward();
      gradients[static_cast<size_t>(ddp.comm().rank())] = one.sometimes->weight.grad().clone();
    };
    train_on_ranks(net, 2, options, step, 3);
    EXPECT_TRUE(torch::equal(gradients[0], gradients[1])) << view;
  }
}

}  // namespace
}  // namespace yoke::parallel::testing
