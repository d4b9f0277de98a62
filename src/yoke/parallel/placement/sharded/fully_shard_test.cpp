// A module of one's own, fully sharded, equals the same module on one device.
#include "yoke/parallel/placement/sharded/fully_shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim/adamw.h>

#include "yoke/base/error.h"
#include "yoke/compute/precision.h"
#include "yoke/compute/recompute.h"
#include "yoke/parallel/common/ddp/ddp_test_net.h"
#include "yoke/parallel/placement/sharded/sharded_units.h"

namespace yoke::parallel::fully_shard_testing {
namespace {

using testing::batch_of_step;
using testing::difference;
using testing::flat_parameters;
using ::testing::HasSubstr;
using testing::loss_of;
using testing::Samples;
using testing::slice;

// Every kind of layer a user has: tied weights, a list of layers, a parameter of the module itself,
// BatchNorm, an embedding.
struct OwnNetImpl : torch::nn::Cloneable<OwnNetImpl> {
  OwnNetImpl() { reset(); }
  void reset() override {
    table = register_module("table", torch::nn::Embedding(5, 6));
    layers = register_module("layers", torch::nn::ModuleList());
    for (int i = 0; i < 3; ++i) layers->push_back(torch::nn::Linear(6, 6));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})));
    scale = register_parameter("scale", torch::ones({6}));
    last = register_module("last", torch::nn::Linear(6, 3));
    to(torch::kFloat64);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = x + table->forward((x.narrow(1, 0, 1).squeeze(1) * 2).abs().to(torch::kLong)) * scale;
    for (const auto& layer : *layers) {
      auto one = [&](const std::vector<torch::Tensor>& in) {
        return std::vector<torch::Tensor>{torch::tanh(layer->as<torch::nn::Linear>()->forward(in[0]))};
      };
      x = x + (again ? recompute(one, {x})[0] : one({x})[0]);
    }
    // The table once more, as GPT-2's head has it.
    return last->forward(norm->forward(x) * scale) + torch::matmul(x, table->weight.t()).narrow(1, 0, 3);
  }
  bool again = false;
  torch::nn::Embedding table{nullptr};
  torch::nn::ModuleList layers{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::Tensor scale;
  torch::nn::Linear last{nullptr};
};

constexpr int kSteps = 10;
using Net = std::shared_ptr<OwnNetImpl>;

Net copy_of(const Net& net) {
  return std::dynamic_pointer_cast<OwnNetImpl>(net->clone());
}

torch::optim::AdamW adamw(std::vector<torch::Tensor> parameters) {
  return torch::optim::AdamW(std::move(parameters), torch::optim::AdamWOptions(0.02).weight_decay(0.1));
}

torch::Tensor alone(const Net& start, double clip = 0) {
  Net net = copy_of(start);
  auto optimizer = adamw(net->parameters());
  for (int step = 0; step < kSteps; ++step) {
    Samples batch = batch_of_step(step);
    optimizer.zero_grad();
    loss_of(net->forward(batch.x), batch.y).backward();
    if (clip > 0) torch::nn::utils::clip_grad_norm_(net->parameters(), clip);
    optimizer.step();
  }
  return flat_parameters(*net);
}

struct Layout {
  int ranks = 2;
  FullyShardOptions options;
  int accumulate = 1;
  bool again = false;
  double clip = 0;
};

torch::Tensor flat(const NamedTensors& tensors) {
  std::vector<torch::Tensor> all;
  for (const auto& [name, tensor] : tensors) all.push_back(tensor.reshape({-1}));
  return torch::cat(all);
}

torch::Tensor sharded(const Net& start, const Layout& run) {
  std::vector<Net> nets;
  for (int rank = 0; rank < run.ranks; ++rank) nets.push_back(copy_of(start));
  std::vector<torch::Tensor> results(static_cast<size_t>(run.ranks));
  comm::run_ranks(run.ranks, [&](comm::Communicator& comm) {
    Net net = nets[static_cast<size_t>(comm.rank())];
    net->again = run.again;
    auto fully = fully_shard(*net, comm, run.options);
    auto optimizer = adamw(fully->parameters());
    for (int step = 0; step < kSteps; ++step) {
      Samples part = slice(batch_of_step(step), comm.rank(), run.ranks);
      optimizer.zero_grad();
      for (int micro = 0; micro < run.accumulate; ++micro) {
        Samples some = slice(part, micro, run.accumulate);
        (loss_of(net->forward(some.x), some.y) / run.accumulate).backward();
      }
      if (run.clip > 0) fully->clip_grad_norm(run.clip);
      optimizer.step();
    }
    results[static_cast<size_t>(comm.rank())] = flat(fully->full_parameters());
  });
  for (const torch::Tensor& one : results) EXPECT_TRUE(one.equal(results[0]));
  return results[0];
}

FullyShardOptions without_sharing() {
  FullyShardOptions options;
  options.share = false;
  return options;
}

Net new_net() {
  torch::manual_seed(7);
  return std::make_shared<OwnNetImpl>();
}

TEST(FullyShard, EqualsOneDeviceOnAnyNumberOfRanks) {
  Net net = new_net();
  torch::Tensor expected = alone(net);
  for (int ranks : {1, 2, 3, 4}) {
    EXPECT_LT(difference(sharded(net, {ranks}), expected), 1e-10) << ranks;
    EXPECT_LT(difference(sharded(net, {ranks, without_sharing()}), expected), 1e-10) << ranks << " gathering";
  }
}

TEST(FullyShard, EqualsOneDeviceWithEveryOption) {
  Net net = new_net();
  torch::Tensor expected = alone(net);
  for (int64_t prefetch : {0, 1, 3})
    for (bool reshard : {true, false}) {
      FullyShardOptions options = without_sharing();
      options.prefetch = prefetch;
      options.reshard_after_forward = reshard;
      EXPECT_LT(difference(sharded(net, {2, options}), expected), 1e-10) << prefetch << " " << reshard;
      options.units = {"layers.*", "last"};
      EXPECT_LT(difference(sharded(net, {2, options}), expected), 1e-10) << prefetch << " " << reshard;
    }
}

TEST(FullyShard, AddsUpMicroBatchesAndComputesAgain) {
  Net net = new_net();
  torch::Tensor expected = alone(net);
  EXPECT_LT(difference(sharded(net, {2, without_sharing(), 2}), expected), 1e-10);
  EXPECT_LT(difference(sharded(net, {2, without_sharing(), 3, true}), expected), 1e-10);
  EXPECT_LT(difference(sharded(net, {3, {}, 2, true}), expected), 1e-10);
}

TEST(FullyShard, ClipsByTheNormOfAllRanks) {
  Net net = new_net();
  EXPECT_LT(difference(sharded(net, {3, {}, 1, false, 0.05}), alone(net, 0.05)), 1e-10);
}

TEST(FullyShard, ReleasesParametersAndFullGradients) {
  Net net = new_net();
  std::vector<Net> nets = {copy_of(net), copy_of(net)};
  comm::run_ranks(2, [&](comm::Communicator& comm) {
    Net own = nets[static_cast<size_t>(comm.rank())];
    auto fully = fully_shard(*own, comm, without_sharing());
    Samples part = slice(batch_of_step(0), comm.rank(), 2);
    loss_of(own->forward(part.x), part.y).backward();
    for (const torch::Tensor& parameter : own->parameters()) {
      EXPECT_FALSE(parameter.grad().defined());
      EXPECT_EQ(parameter.storage().data(), nullptr);
    }
    for (const torch::Tensor& piece : fully->parameters()) EXPECT_TRUE(piece.grad().defined());
  });
}

TEST(FullyShard, EvaluatesWithoutBackward) {
  Net net = new_net();
  torch::Tensor x = batch_of_step(3).x, expected = net->forward(x).detach();
  std::vector<Net> nets = {copy_of(net), copy_of(net)};
  comm::run_ranks(2, [&](comm::Communicator& comm) {
    Net own = nets[static_cast<size_t>(comm.rank())];
    auto fully = fully_shard(*own, comm, without_sharing());
    for (int i = 0; i < 3; ++i) {
      torch::NoGradGuard no_grad;
      EXPECT_LT(difference(own->forward(x), expected), 1e-14);
      fully->release();
    }
  });
}

// fp32 shards, bf16 parameters under autocast: close to training without.
TEST(FullyShard, GathersNarrowCopies) {
  for (bool share : {true, false}) {
    torch::manual_seed(7);
    auto net = std::make_shared<OwnNetImpl>();
    net->to(torch::kFloat32);
    std::vector<Net> nets = {copy_of(net), copy_of(net)};
    for (Net& one : nets) one->to(torch::kFloat32);
    comm::run_ranks(2, [&](comm::Communicator& comm) {
      Net own = nets[static_cast<size_t>(comm.rank())];
      FullyShardOptions options;
      options.share = share;
      options.gather_type = torch::kBFloat16;
      auto fully = fully_shard(*own, comm, options);
      auto optimizer = adamw(fully->parameters());
      EXPECT_EQ(own->last->weight.scalar_type(), torch::kBFloat16);
      double first = 0, last = 0;
      for (int step = 0; step < 30; ++step) {
        Samples part = slice(batch_of_step(0), comm.rank(), 2);
        optimizer.zero_grad();
        torch::Tensor loss;
        {
          AutocastGuard autocast(torch::kCPU, Precision::kBf16);
          loss = loss_of(own->forward(part.x.to(torch::kFloat32)), part.y.to(torch::kFloat32));
        }
        loss.backward();
        optimizer.step();
        (step == 0 ? first : last) = loss.item<double>();
      }
      EXPECT_LT(last, first * 0.7);
      for (const auto& [name, tensor] : fully->full_parameters())
        EXPECT_EQ(tensor.scalar_type(), torch::kFloat32) << name;
    });
  }
}

TEST(FullyShard, NamesWhatIsWrong) {
  comm::run_ranks(1, [&](comm::Communicator& comm) {
    auto make = [&](const FullyShardOptions& options) { fully_shard(*new_net(), comm, options); };
    FullyShardOptions options;
    options.units = {"h.*"};
    EXPECT_THAT([&] { make(options); }, ::testing::ThrowsMessage<ConfigError>(HasSubstr("layers.0")));
    options = {};
    options.offload = "all";
    EXPECT_THAT([&] { make(options); },
                ::testing::ThrowsMessage<ConfigError>(HasSubstr("in host memory already")));
    options.offload = "some";
    EXPECT_THAT([&] { make(options); }, ::testing::ThrowsMessage<ConfigError>(HasSubstr("accepted are")));
  });
}

TEST(FullyShard, NamesAParameterWithoutAGradient) {
  comm::run_ranks(1, [&](comm::Communicator& comm) {
    testing::NetImpl net;
    FullyShardOptions options;
    options.units = {"first"};
    auto fully = fully_shard(net, comm, options);
    torch::Tensor x = batch_of_step(0).x;
    EXPECT_THAT([&] { net.second(net.first(x)).sum().backward(); },
                ::testing::ThrowsMessage<ConfigError>(HasSubstr("no gradient to last.weight")));
  });
}

TEST(FullyShard, TakesValuesOfWholeParameters) {
  Net from = new_net(), other = new_net();
  for (torch::Tensor& parameter : other->parameters()) parameter.data().add_(1);
  NamedTensors whole;
  for (const auto& item : from->named_parameters())
    whole.emplace_back(item.key(), item.value().detach().clone());
  std::vector<Net> nets = {copy_of(other), copy_of(other), copy_of(other)};
  comm::run_ranks(3, [&](comm::Communicator& comm) {
    auto fully = fully_shard(*nets[static_cast<size_t>(comm.rank())], comm);
    fully->load(whole);
    NamedTensors now = fully->full_parameters();
    for (size_t i = 0; i < now.size(); ++i) EXPECT_TRUE(now[i].second.equal(whole[i].second));
    EXPECT_THROW(fully->load({{"none", torch::ones({1})}}), CheckpointError);
  });
}

}  // namespace
}  // namespace yoke::parallel::fully_shard_testing
