// What single hooks promise beyond what all do.
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "yoke/comm/run_ranks.h"
#include "yoke/parallel/common/ddp/hooks/hooks.h"
#include "yoke/parallel/common/ddp/hooks/test_bucket.h"
#include "yoke/parallel/common/ddp/hooks/thin_matrix.h"

namespace yoke::parallel {
namespace {

const Shapes kLayers = {{30, 40}, {7}, {16, 3, 5, 5}};

TEST(CastHooks, RoundOnlyToTheirType) {
  comm::run_ranks(3, [](comm::Communicator& comm) {
    for (auto [name, tolerance] : {std::pair{"fp16", 1e-3}, {"bf16", 8e-3}}) {
      auto hook = make_hook(name);
      GradientBucket bucket = bucket_of(comm, kLayers);
      draw(bucket, 0);
      torch::Tensor truth = true_average(bucket);
      reduce(*hook, bucket);
      EXPECT_LT(relative_error(bucket.flat, truth), tolerance) << name;
    }
  });
}

TEST(CastHooks, SumGradientsNearTheLargestOfFp16) {
  comm::run_ranks(4, [](comm::Communicator& comm) {
    auto hook = make_hook("fp16");
    GradientBucket bucket = bucket_of(comm, {{8}});
    bucket.flat.fill_(60000);
    reduce(*hook, bucket);
    EXPECT_TRUE(bucket.flat.eq(60000).all().item<bool>()) << bucket.flat;
  });
}

TEST(TopkHook, OfEverythingIsTheUncompressedAverage) {
  comm::run_ranks(4, [](comm::Communicator& comm) {
    auto hook = make_hook("topk:1");
    GradientBucket bucket = bucket_of(comm, kLayers, torch::kFloat64);
    for (int step = 0; step < 3; ++step) {
      draw(bucket, step);
      torch::Tensor truth = true_average(bucket);
      reduce(*hook, bucket);
      EXPECT_LT(relative_error(bucket.flat, truth), 1e-15);
    }
  });
}

TEST(TopkHook, SendsTheLargestAndOwesTheRest) {
  comm::run_ranks(2, [](comm::Communicator& comm) {
    auto hook = make_hook("topk:0.25");
    GradientBucket bucket = bucket_of(comm, {{4}});
    bucket.flat.copy_(comm.rank() == 0 ? torch::tensor({1.f, -8.f, 2.f, 3.f})
                                       : torch::tensor({6.f, 0.f, 5.f, 0.f}));
    reduce(*hook, bucket);
    EXPECT_TRUE(bucket.flat.equal(torch::tensor({3.f, -4.f, 0.f, 0.f}))) << bucket.flat;
    bucket.flat.zero_();
    reduce(*hook, bucket);
    EXPECT_TRUE(bucket.flat.equal(torch::tensor({0.f, 0.f, 2.5f, 1.5f}))) << bucket.flat;
  });
}

TEST(SignHook, AveragesScaledSigns) {
  comm::run_ranks(2, [](comm::Communicator& comm) {
    auto hook = make_hook("sign");
    GradientBucket bucket = bucket_of(comm, {{2}});
    bucket.flat.copy_(comm.rank() == 0 ? torch::tensor({1.f, -3.f}) : torch::tensor({1.f, 1.f}));
    reduce(*hook, bucket);
    EXPECT_TRUE(bucket.flat.equal(torch::tensor({1.5f, -0.5f}))) << bucket.flat;
  });
}

TEST(Int8Hook, IsWithinTwoRoundings) {
  comm::run_ranks(4, [](comm::Communicator& comm) {
    auto hook = make_hook("int8");
    GradientBucket bucket = bucket_of(comm, {{5000}});
    draw(bucket, 0);
    torch::Tensor truth = true_average(bucket);
    reduce(*hook, bucket);
    // Each rounding is off by at most half a quantum; the largest of 512 normal numbers is below 5.
    EXPECT_LT((bucket.flat - truth).abs().max().item<double>(), 2 * 0.5 * 5 / 127);
  });
}

TEST(PowerSgdHook, GetsMatricesOfItsRankRightAtOnce) {
  comm::run_ranks(3, [](comm::Communicator& comm) {
    auto hook = make_hook("powersgd:2");
    GradientBucket bucket = bucket_of(comm, {{30, 40}, {7}}, torch::kFloat64);
    auto generator = at::make_generator<at::CPUGeneratorImpl>(uint64_t{3});
    torch::Tensor left = torch::randn({30, 2}, generator, torch::kFloat64);
    torch::Tensor right = torch::randn({2, 40}, generator, torch::kFloat64);
    bucket.parts[0].copy_(left.mm(right) * (comm.rank() + 1.0));
    bucket.parts[1].fill_(comm.rank());
    torch::Tensor truth = true_average(bucket);
    reduce(*hook, bucket);
    EXPECT_LT(relative_error(bucket.flat, truth), 1e-12);
  });
}

TEST(PowerSgdHook, FindsAMatrixThatWasZeroForAWhile) {
  comm::run_ranks(2, [](comm::Communicator& comm) {
    auto hook = make_hook("powersgd:2");
    GradientBucket bucket = bucket_of(comm, {{30, 40}});
    for (int step = 0; step < 3; ++step) {
      bucket.flat.zero_();
      reduce(*hook, bucket);
      EXPECT_TRUE(bucket.flat.eq(0).all().item<bool>());
    }
    bucket.flat.fill_(1);
    reduce(*hook, bucket);
    EXPECT_LT(relative_error(bucket.flat, torch::ones({1200}, torch::kFloat64)), 1e-5);
  });
}

TEST(ThinMatrix, RowsAreAtRightAnglesAndDependentOnesZero) {
  torch::Tensor rows = torch::randn({4, 50}, torch::kFloat64);
  rows[2] = 2 * rows[0] - rows[1];
  orthonormalise(rows.data_ptr<double>(), 4, 50);
  torch::Tensor products = rows.mm(rows.t());
  torch::Tensor expected = torch::diag(torch::tensor({1., 1., 0., 1.}, torch::kFloat64));
  EXPECT_LT((products - expected).abs().max().item<double>(), 1e-14) << products;
}

}  // namespace
}  // namespace yoke::parallel
