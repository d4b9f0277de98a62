#include "yoke/parallel/common/ddp/sync_batchnorm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include <array>

#include "yoke/base/error.h"
#include "yoke/comm/run_ranks.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/comm/tensors/test_gradcheck.h"
#include "yoke/compute/layers.h"
#include "yoke/compute/recompute.h"

namespace yoke {
namespace {

using comm::Communicator;
using testing::HasSubstr;
using torch::Tensor;
using torch::nn::BatchNormOptions;

// Everything one-device BatchNorm gives for a whole batch, and the same from ranks that have parts of it.
struct NormResult {
  Tensor y, grad_x, grad_weight, grad_bias, mean, variance;
};

double norm_difference(const Tensor& a, const Tensor& b) {
  if (!a.defined() && !b.defined()) return 0;
  if (a.numel() == 0) return 0;
  return ((a - b).abs().max() / (1 + b.abs().max())).item<double>();
}

// The loss of all samples is the sum of y * target.
template <class Norm>
NormResult run_norm(Norm& norm, Tensor x, const Tensor& target, int steps) {
  NormResult result;
  x = x.detach().clone().requires_grad_();
  for (int step = 0; step < steps; ++step) result.y = norm(x * (step + 1.0));
  if (result.y.requires_grad()) (result.y * target).sum().backward();
  result.grad_x = x.grad();
  return result;
}

template <class Module>
void read_norm(NormResult& result, Module& norm) {
  if (norm.weight.defined()) {
    result.grad_weight = norm.weight.grad().clone();
    result.grad_bias = norm.bias.grad().clone();
  }
  if (norm.running_mean.defined()) {
    result.mean = norm.running_mean;
    result.variance = norm.running_var;
  }
}

struct NormBatch {
  Tensor x, target;
};

NormBatch norm_batch_of(const std::vector<int64_t>& sizes, torch::ScalarType type) {
  torch::manual_seed(3);
  return {torch::randn(sizes, type) * 2 + 5, torch::randn(sizes, type)};
}

// Rank r of n has a different number of rows; the last of three or more has none.
std::pair<int64_t, int64_t> rows_of_rank(int64_t rows, int rank, int ranks) {
  if (ranks == 1) return {0, rows};
  int64_t first = rows / 2 + 1;
  if (rank == 0) return {0, first};
  int64_t others = ranks == 2 ? 1 : ranks - 2, left = rows - first;
  int64_t begin = first + left * (rank - 1) / others, end = first + left * rank / others;
  return rank - 1 < others ? std::pair{begin, end} : std::pair{rows, rows};
}

void fill_affine(Tensor& weight, Tensor& bias) {
  if (!weight.defined()) return;
  torch::NoGradGuard no_grad;
  weight.copy_(torch::linspace(0.5, 2, weight.numel()));
  bias.copy_(torch::linspace(-1, 1, bias.numel()));
}

void expect_same_as_one_device(const BatchNormOptions& options, const std::vector<int64_t>& sizes,
                               torch::ScalarType type, double tolerance, bool training = true) {
  NormBatch whole = norm_batch_of(sizes, type);
  torch::nn::BatchNorm2d one(options);
  fill_affine(one->weight, one->bias);
  one->to(type);
  one->train(training);
  bool image = sizes.size() == 4;
  auto four_dims = [&](const Tensor& x) { return image ? x : x.reshape({x.size(0), x.size(1), -1, 1}); };
  auto reference = [&](const Tensor& x) { return one->forward(four_dims(x)).reshape(x.sizes()); };
  NormResult expected = run_norm(reference, whole.x, whole.target, 3);
  read_norm(expected, *one);
  for (int ranks : {1, 2, 3, 4})
    comm::run_ranks(ranks, [&](Communicator& comm) {
      SyncBatchNorm norm(options, comm);
      fill_affine(norm->weight, norm->bias);
      norm->to(type);
      norm->train(training);
      auto [begin, end] = rows_of_rank(sizes[0], comm.rank(), ranks);
      NormResult got = run_norm(norm, whole.x.slice(0, begin, end), whole.target.slice(0, begin, end), 3);
      read_norm(got, *norm);
      EXPECT_LT(norm_difference(got.y, expected.y.slice(0, begin, end)), tolerance) << ranks << " ranks";
      EXPECT_LT(norm_difference(got.grad_x, expected.grad_x.slice(0, begin, end)), tolerance)
          << ranks << " ranks";
      if (options.affine()) {
        comm::all_reduce(comm, got.grad_weight);
        comm::all_reduce(comm, got.grad_bias);
        EXPECT_LT(norm_difference(got.grad_weight, expected.grad_weight), tolerance) << ranks << " ranks";
        EXPECT_LT(norm_difference(got.grad_bias, expected.grad_bias), tolerance) << ranks << " ranks";
      }
      EXPECT_LT(norm_difference(got.mean, expected.mean), tolerance) << ranks << " ranks";
      EXPECT_LT(norm_difference(got.variance, expected.variance), tolerance) << ranks << " ranks";
    });
}

TEST(SyncBatchNorm, EqualsOneDeviceOnTheWholeBatch) {
  for (auto [type, tolerance] : {std::pair{torch::kFloat64, 1e-12}, {torch::kFloat32, 1e-6}}) {
    expect_same_as_one_device(BatchNormOptions(5), {9, 5, 4, 3}, type, tolerance);
    expect_same_as_one_device(BatchNormOptions(5), {9, 5}, type, tolerance);
    expect_same_as_one_device(BatchNormOptions(5), {9, 5, 7}, type, tolerance);
    expect_same_as_one_device(BatchNormOptions(3), {9, 3, 2, 4, 3}, type, tolerance);
  }
}

TEST(SyncBatchNorm, EqualsOneDeviceWithEveryOption) {
  const std::vector<int64_t> sizes = {9, 5, 4, 3};
  for (auto options :
       {BatchNormOptions(5).affine(false), BatchNormOptions(5).momentum(std::nullopt),
        BatchNormOptions(5).momentum(0.7).eps(1e-2), BatchNormOptions(5).track_running_stats(false),
        BatchNormOptions(5).affine(false).track_running_stats(false)})
    for (bool training : {true, false})
      expect_same_as_one_device(options, sizes, torch::kFloat64, 1e-12, training);
}

TEST(SyncBatchNorm, GradientsAreThoseOfAllRanksLosses) {
  for (int ranks : {1, 2, 3})
    comm::run_ranks(ranks, [](Communicator& comm) {
      torch::manual_seed(comm.rank());
      SyncBatchNorm norm(BatchNormOptions(2).track_running_stats(false), comm);
      norm->to(torch::kFloat64);
      auto loss = [&](Communicator&, const std::vector<Tensor>& inputs) {
        return norm(inputs[0]).pow(3).mul(inputs[1]).sum();
      };
      std::vector<Tensor> inputs = {torch::randn({3, 2, 2}, torch::kFloat64),
                                    torch::randn({3, 2, 2}, torch::kFloat64)};
      EXPECT_LT(comm::gradient_error(comm, inputs, loss), 1e-6);
    });
}

TEST(SyncBatchNorm, HasTheNamesOfBatchNorm) {
  comm::run_ranks(1, [](Communicator& comm) {
    SyncBatchNorm ours(4, comm);
    torch::nn::BatchNorm2d theirs(4);
    EXPECT_EQ(ours->named_parameters().keys(), theirs->named_parameters().keys());
    EXPECT_EQ(ours->named_buffers().keys(), theirs->named_buffers().keys());
    EXPECT_THROW(ours(torch::zeros({4})), ConfigError);
    EXPECT_THROW(ours(torch::zeros({3, 5})), ConfigError);
    EXPECT_THROW(ours(torch::zeros({1, 4})), ConfigError);
  });
}

// A user's module: layers are members, called by their own forward().
struct UserNet : torch::nn::Module {
  UserNet() {
    first = register_module("first", torch::nn::BatchNorm1d(3));
    for (size_t i = 0; i < 4; ++i)
      norms[i] = register_module("norm" + std::to_string(i), torch::nn::BatchNorm2d(3));
  }
  Tensor forward(const Tensor& x) {
    Tensor y = norms[0]->forward(first(x.flatten(2)).view(x.sizes()).square());
    y = compute::batch_norm_add_relu(*norms[1], y, x);
    return compute::batch_norm_relu(*norms[2], y) + compute::batch_norm(*norms[3], x);
  }
  torch::nn::BatchNorm1d first{nullptr};
  std::array<std::shared_ptr<torch::nn::BatchNorm2dImpl>, 4> norms;
};

TEST(ConvertSyncBatchNorm, ReachesLayersHoweverTheyAreCalled) {
  NormBatch whole = norm_batch_of({8, 3, 2, 2}, torch::kFloat32);
  UserNet one;
  Tensor x = whole.x.clone().requires_grad_();
  Tensor y = one.forward(x);
  (y * whole.target).sum().backward();
  for (int ranks : {2, 4})
    comm::run_ranks(ranks, [&](Communicator& comm) {
      UserNet net;
      EXPECT_EQ(convert_sync_batchnorm(net, comm), 5);
      int64_t rows = 8 / ranks, begin = comm.rank() * rows;
      Tensor mine = whole.x.narrow(0, begin, rows).clone().requires_grad_();
      Tensor got = net.forward(mine);
      (got * whole.target.narrow(0, begin, rows)).sum().backward();
      EXPECT_LT(norm_difference(got, y.narrow(0, begin, rows)), 2e-6);
      EXPECT_LT(norm_difference(mine.grad(), x.grad().narrow(0, begin, rows)), 5e-6);
      for (size_t i = 0; i < 4; ++i)
        EXPECT_LT(norm_difference(net.norms[i]->running_var, one.norms[i]->running_var), 2e-6);
      EXPECT_LT(norm_difference(net.first->running_mean, one.first->running_mean), 1e-6);
      net.eval();
      EXPECT_EQ(net.forward(mine).sizes(), mine.sizes());
    });
  // Layers of other models are as they were.
  UserNet other;
  EXPECT_TRUE(other.forward(whole.x).equal(UserNet().forward(whole.x)));
}

TEST(ConvertSyncBatchNorm, NamesALayerItCannotReach) {
  comm::run_ranks(1, [](Communicator& comm) {
    torch::nn::Module net("net");
    net.register_module("bare",
                        torch::nn::BatchNorm2d(BatchNormOptions(3).affine(false).track_running_stats(false)));
    try {
      convert_sync_batchnorm(net, comm);
      ADD_FAILURE() << "was accepted";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("'bare'"));
    }
  });
}

TEST(ConvertSyncBatchNorm, RecomputationCommunicatesNoMoreThanAPlainRun) {
  comm::run_ranks(2, [](Communicator& comm) {
    torch::manual_seed(comm.rank());
    Tensor input = torch::randn({4, 3, 2, 2});
    Tensor gradients[2], means[2];
    int64_t operations[2];
    for (bool recomputed : {false, true}) {
      UserNet net;
      convert_sync_batchnorm(net, comm);
      Tensor x = input.clone().requires_grad_();
      int64_t before = comm.counters().operations;
      auto block = [&](const std::vector<Tensor>& v) { return std::vector<Tensor>{net.forward(v[0])}; };
      // Only rank 0 forgets its activations.
      Tensor y = recomputed && comm.rank() == 0 ? recompute(block, {x})[0] : block({x})[0];
      y.square().sum().backward();
      operations[recomputed] = comm.counters().operations - before;
      gradients[recomputed] = x.grad();
      means[recomputed] = net.norms[2]->running_mean;
    }
    EXPECT_EQ(operations[0], operations[1]);
    EXPECT_TRUE(gradients[0].equal(gradients[1]));
    EXPECT_TRUE(means[0].equal(means[1]));
  });
}

}  // namespace
}  // namespace yoke
