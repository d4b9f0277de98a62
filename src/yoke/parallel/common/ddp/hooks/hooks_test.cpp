// What every hook owes, whatever it does inside.
#include "yoke/parallel/common/ddp/hooks/hooks.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/comm/run_ranks.h"
#include "yoke/parallel/common/ddp/hooks/test_bucket.h"

namespace yoke::parallel {
namespace {

using testing::HasSubstr;

const char* const kAll[] = {"fp16", "bf16", "powersgd:2", "topk:0.1", "sign", "int8"};
const char* const kWithMemory[] = {"powersgd:2", "topk:0.1", "sign", "int8"};
const Shapes kMixed = {{30, 40}, {7}, {0}, {16, 3, 5, 5}, {1}, {2, 2}};

TEST(Hooks, GiveEveryRankTheSameBitsForEveryTypeOfGradient) {
  for (const char* name : kAll)
    for (int ranks : {1, 2, 3, 4})
      comm::run_ranks(ranks, [&](comm::Communicator& comm) {
        for (auto type : {torch::kFloat32, torch::kFloat64, torch::kBFloat16}) {
          auto hook = make_hook(name);
          for (int index : {0, 1}) {
            GradientBucket bucket = bucket_of(comm, kMixed, type, index);
            for (int step = 0; step < 3; ++step) {
              draw(bucket, step);
              torch::Tensor truth = true_average(bucket);
              reduce(*hook, bucket);
              EXPECT_TRUE(same_bits(comm, bucket.flat)) << name << " on " << ranks << " ranks";
              EXPECT_TRUE(bucket.flat.isfinite().all().item<bool>()) << name;
              EXPECT_LT(relative_error(bucket.flat, truth), 2) << name;
            }
          }
        }
      });
}

TEST(Hooks, TakeBucketsWithNothingOrAlmostNothingInThem) {
  for (const char* name : kAll)
    comm::run_ranks(3, [&](comm::Communicator& comm) {
      auto hook = make_hook(name);
      GradientBucket empty = bucket_of(comm, {{0}, {0, 5}}, torch::kFloat32, 0);
      reduce(*hook, empty);
      EXPECT_EQ(hook->bytes_compressed(), 0) << name;
      GradientBucket one = bucket_of(comm, {{1, 1}}, torch::kFloat32, 1);
      one.flat.fill_(comm.rank() + 1.0);
      reduce(*hook, one);
      EXPECT_NEAR(one.flat.item<double>(), 2, 0.02) << name;
    });
}

TEST(Hooks, MakeTheAverageOverManyStepsTrue) {
  // What is left out of a step comes later: sums over steps differ by what is still owed, which does not
  // grow.
  for (const char* name : kWithMemory)
    for (int ranks : {1, 2, 3, 4})
      comm::run_ranks(ranks, [&](comm::Communicator& comm) {
        auto hook = make_hook(name);
        GradientBucket bucket = bucket_of(comm, kMixed, torch::kFloat64);
        torch::Tensor given = torch::zeros_like(bucket.flat), truth = torch::zeros_like(bucket.flat);
        draw(bucket, 0);
        torch::Tensor direction = bucket.flat.clone();
        double errors[2];
        for (int step = 1; step <= 400; ++step) {
          draw(bucket, step);
          bucket.flat.mul_(0.3).add_(direction);  // a gradient and the noise of its batch
          truth += true_average(bucket);
          reduce(*hook, bucket);
          given += bucket.flat;
          if (step == 100) errors[0] = relative_error(given, truth);
        }
        errors[1] = relative_error(given, truth);
        EXPECT_LT(errors[1], 0.1) << name << " on " << ranks << " ranks";
        EXPECT_LT(errors[1], errors[0] / 2) << name << " on " << ranks << " ranks";
      });
}

TEST(Hooks, PassOnWhatIsNotFiniteAndForgetIt) {
  for (const char* name : kAll)
    for (double bad : {std::numeric_limits<double>::infinity(), std::nan("")})
      comm::run_ranks(3, [&](comm::Communicator& comm) {
        for (int64_t place : {5, 1203, 1500}) {
          auto hook = make_hook(name), undisturbed = make_hook(name);
          GradientBucket bucket = bucket_of(comm, kMixed), twin = bucket_of(comm, kMixed);
          draw(bucket, 0);
          twin.flat.copy_(bucket.flat);
          reduce(*hook, bucket);
          reduce(*undisturbed, twin);
          draw(bucket, 1);
          if (comm.rank() == 1) bucket.flat[place] = bad;
          reduce(*hook, bucket);
          EXPECT_FALSE(bucket.flat.isfinite().all().item<bool>())
              << name << " lost " << bad << " at " << place;
          draw(bucket, 2);
          twin.flat.copy_(bucket.flat);
          reduce(*hook, bucket);
          reduce(*undisturbed, twin);
          EXPECT_TRUE(bucket.flat.isfinite().all().item<bool>()) << name;
          // PowerSGD starts such a matrix from a new direction.
          EXPECT_TRUE(std::string(name) == "powersgd:2" || bucket.flat.equal(twin.flat)) << name;
        }
      });
}

TEST(Hooks, DivideTheSumByTheDivisor) {
  for (const char* name : kAll)
    comm::run_ranks(2, [&](comm::Communicator& comm) {
      auto sums = make_hook(name), averages = make_hook(name);
      GradientBucket sum = bucket_of(comm, kMixed), average = bucket_of(comm, kMixed);
      sum.divisor = 1;
      for (int step = 0; step < 3; ++step) {
        draw(sum, step);
        average.flat.copy_(sum.flat);
        reduce(*sums, sum);
        reduce(*averages, average);
        EXPECT_LT(relative_error(average.flat * 2, sum.flat.to(torch::kFloat64)), 1e-2) << name;
      }
    });
}

TEST(Hooks, ForgetWhatTheyOwedWhenBucketsAreCutAnew) {
  for (const char* name : kWithMemory)
    comm::run_ranks(2, [&](comm::Communicator& comm) {
      auto hook = make_hook(name), fresh = make_hook(name);
      GradientBucket old = bucket_of(comm, {{40, 50}}), bucket = bucket_of(comm, kMixed);
      draw(old, 0);
      reduce(*hook, old);
      hook->forget_buckets();
      draw(bucket, 1);
      GradientBucket twin = bucket_of(comm, kMixed);
      twin.flat.copy_(bucket.flat);
      reduce(*hook, bucket);
      reduce(*fresh, twin);
      EXPECT_TRUE(bucket.flat.equal(twin.flat)) << name;
    });
}

TEST(Hooks, CountTheBytesTheyHandOver) {
  struct Expected {
    const char* name;
    int64_t bytes;
  };
  // [64, 48] and [100]: 3172 numbers. On 4 ranks a share is 793 numbers, which are two chunks of int8.
  const Expected expected[] = {
      {"fp16", 2 * 3172},    {"bf16", 2 * 3172},    {"powersgd:2", 4 * (2 * (64 + 48) + 100)},
      {"topk:0.1", 318 * 8}, {"sign", 4 * 4 + 400}, {"int8", 5 * (2 * 4 + 796)},
  };
  for (const Expected& e : expected)
    comm::run_ranks(4, [&](comm::Communicator& comm) {
      auto hook = make_hook(e.name);
      GradientBucket bucket = bucket_of(comm, {{64, 48}, {100}});
      for (int step = 0; step < 2; ++step) {
        draw(bucket, step);
        reduce(*hook, bucket);
      }
      EXPECT_EQ(hook->bytes_compressed(), 2 * e.bytes) << e.name;
      EXPECT_EQ(hook->bytes_uncompressed(), 2 * 4 * 3172) << e.name;
    });
}

// Least squares on three ranks with their own rows: the loss after training with a hook.
double trained_loss(const std::string& name) {
  double result = 0;
  comm::run_ranks(3, [&](comm::Communicator& comm) {
    auto hook = make_hook(name);
    auto generator = at::make_generator<at::CPUGeneratorImpl>(uint64_t{7});
    torch::Tensor x = torch::randn({96, 40}, generator, torch::kFloat32);
    torch::Tensor y = x.mm(torch::randn({40, 30}, generator, torch::kFloat32)) + 3;
    y += 0.1 * torch::randn({96, 30}, generator, torch::kFloat32);
    torch::Tensor mine_x = x.narrow(0, comm.rank() * 32, 32), mine_y = y.narrow(0, comm.rank() * 32, 32);
    GradientBucket bucket = bucket_of(comm, {{40, 30}, {30}});
    torch::Tensor w = torch::zeros({40, 30}), b = torch::zeros({30});
    for (int step = 0; step < 600; ++step) {
      torch::Tensor wrong = mine_x.mm(w) + b - mine_y;
      bucket.parts[0].copy_(mine_x.t().mm(wrong) / 32);
      bucket.parts[1].copy_(wrong.mean(0));
      if (hook)
        reduce(*hook, bucket);
      else
        bucket.flat.copy_(true_average(bucket));
      double rate = 0.1 / (1 + step / 200.0);
      w -= rate * bucket.parts[0];
      b -= rate * bucket.parts[1];
    }
    if (comm.rank() == 0) result = (x.mm(w) + b - y).square().mean().item<double>();
  });
  return result;
}

TEST(Hooks, TrainToTheLossWithoutCompression) {
  double plain = trained_loss("none");
  for (const char* name : kAll) {
    double loss = trained_loss(name);
    RecordProperty(name, std::to_string(loss / plain));
    EXPECT_LT(loss, 1.05 * plain) << name;
  }
}

TEST(Hooks, AreMadeFromTheirNames) {
  EXPECT_EQ(make_hook("none"), nullptr);
  for (const char* bad :
       {"", "fp8", "powersgd", "powersgd:0", "powersgd:1.5", "topk:0", "topk:1.1", "sign:2"}) {
    try {
      make_hook(bad);
      ADD_FAILURE() << bad << " was accepted";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("powersgd:R"));
    }
  }
}

}  // namespace
}  // namespace yoke::parallel
