#include "yoke/parallel/placement/slice/parallelize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/compute/interception.h"
#include "yoke/compute/precision.h"
#include "yoke/compute/recompute.h"
#include "yoke/models/alexnet/alexnet.h"
#include "yoke/models/model.h"
#include "yoke/models/test_batch.h"
#include "yoke/parallel/placement/slice/region.h"
#include "yoke/parallel/placement/slice/slice_test_training.h"

namespace yoke::parallel::slice_testing {
namespace {

using ::testing::HasSubstr;
using torch::Tensor;

Tensor numbers(std::vector<int64_t> shape, double phase) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return torch::sin(torch::arange(count, torch::kFloat64) * 0.7 + phase).view(shape);
}

Tensor classes(int64_t count, int64_t most, int step) {
  return (torch::arange(count) * 7 + step * 3).remainder(most);
}

struct MlpImpl : torch::nn::Module {
  MlpImpl() {
    up = register_module("up", torch::nn::Linear(6, 11));
    down = register_module("down", torch::nn::Linear(11, 5));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({5})));
    head = register_module("head", torch::nn::Linear(5, 4));
    to(torch::kFloat64);
  }
  Tensor forward(const Tensor& x) { return head(norm(down(torch::tanh(up(x))))); }
  torch::nn::Linear up{nullptr}, down{nullptr}, head{nullptr};
  torch::nn::LayerNorm norm{nullptr};
};

const char* const kMlpPlan = "up = \"columns\"\ndown = \"rows\"";

// `dims` of the input: torch::nn::Linear takes other operators for three.
Trainee own_mlp(bool three_dims) {
  auto net = std::make_shared<MlpImpl>();
  auto loss = [net, three_dims](int step) {
    Tensor x = numbers({6, 6}, step);
    Tensor y = net->forward(three_dims ? x.view({2, 3, 6}) : x).view({6, 4});
    return torch::cross_entropy_loss(y, classes(6, 4, step));
  };
  return {net, loss};
}

TEST(Parallelize, TrainsAUsersPerceptronAsOneDevice) {
  for (int ranks : {1, 2, 3, 4, 8}) {
    expect_same_training([] { return own_mlp(false); }, parse_tensor_plan(kMlpPlan), ranks);
    expect_same_training([] { return own_mlp(true); }, parse_tensor_plan(kMlpPlan), ranks);
  }
}

struct ConvNetImpl : torch::nn::Module {
  ConvNetImpl() {
    first =
        register_module("first", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 9, 3).padding(1).bias(false)));
    norm = register_module("norm", torch::nn::BatchNorm2d(9));
    second = register_module("second", torch::nn::Conv2d(torch::nn::Conv2dOptions(9, 8, 3).stride(2)));
    third = register_module("third", torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 1)));
    last = register_module("last", torch::nn::Linear(8 * 3 * 3, 3));
    to(torch::kFloat64);
  }
  Tensor forward(const Tensor& x) {
    Tensor y = torch::relu(third(torch::relu(second(torch::relu(norm(first(x)))))));
    return last(y.flatten(1));
  }
  torch::nn::Conv2d first{nullptr}, second{nullptr}, third{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear last{nullptr};
};

TEST(Parallelize, TrainsAConvolutionalNetAsOneDevice) {
  auto make = []() -> Trainee {
    auto net = std::make_shared<ConvNetImpl>();
    auto loss = [net](int step) {
      return torch::cross_entropy_loss(net->forward(numbers({4, 3, 8, 8}, step)), classes(4, 3, step));
    };
    return {net, loss};
  };
  plan::TensorPlan plan = parse_tensor_plan(
      "first = \"channels_out\"\nsecond = \"channels_in\"\nthird = \"channels_out\"\nlast = \"rows\"");
  for (int ranks : {2, 3, 4, 8}) expect_same_training(make, plan, ranks);
}

constexpr int kFewSteps = 2;  // of nets that take seconds in fp64

Trainee of_built(const models::Model& model, int64_t samples) {
  model.module->to(torch::kFloat64);
  auto loss = [model, samples](int step) {
    models::TestBatch batch;
    if (model.sample.kind == SampleKind::kTokens) {
      int64_t length = model.sample.shape[0];
      Tensor ids = classes(samples * (length + 1), model.sample.classes, step).view({samples, length + 1});
      batch = {{ids.narrow(1, 0, length)}, ids.narrow(1, 1, length)};
    } else {
      std::vector<int64_t> shape = model.sample.shape;
      shape.insert(shape.begin(), samples);
      batch = {{numbers(shape, step)}, classes(samples, model.sample.classes, step)};
    }
    return model.loss(model.forward(batch.inputs), batch.target);
  };
  return {model.module, loss};
}

Trainee of_model(const models::ModelOptions& options, int64_t samples) {
  return of_built(models::build(options), samples);
}

plan::TensorPlan preset_of(const models::ModelOptions& options, int64_t heads = 0) {
  return plan::tensor_preset(options.name, tensor_layers(*models::lay_out(options).module), heads);
}

const models::ModelOptions kGpt{
    .name = "gpt2", .layers = 2, .heads = 8, .width = 16, .vocabulary = 23, .positions = 8};

TEST(Parallelize, TrainsGpt2AsOneDevice) {
  for (int ranks : {2, 3, 4, 8})
    expect_same_training([] { return of_model(kGpt, 2); }, preset_of(kGpt, 8), ranks);
}

TEST(Parallelize, TrainsGpt2WithShardedSequencesAsOneDevice) {
  for (int ranks : {2, 4, 8})
    expect_same_training([] { return of_model(kGpt, 2); }, preset_of(kGpt, 8), ranks, {.sequence = true});
}

TEST(Parallelize, TrainsTheOtherModelsOfTheBoxAsOneDevice) {
  models::ModelOptions mlp{.name = "mlp", .sizes = {6, 9, 8, 7, 3}};
  expect_same_training([&] { return of_model(mlp, 4); }, preset_of(mlp), 3);
  models::ModelOptions vgg{.name = "vgg_small"};
  expect_same_training([&] { return of_model(vgg, 2); }, preset_of(vgg), 2, {}, kFewSteps);
}

TEST(Parallelize, TrainsAlexNetAsOneDevice) {
  models::ModelOptions options{.name = "alexnet", .classes = 10, .image_size = 63, .dropout = 0};
  expect_same_training([&] { return of_model(options, 1); }, preset_of(options), 2, {}, kFewSteps);
}

// As its authors ran it. Parameters are counted at full size, training is compared on small images.
TEST(Parallelize, TrainsTheAlexNetOfTwoDevicesAsOneDevice) {
  EXPECT_EQ(models::make_alexnet_of_two({.name = "alexnet"}).parameter_count(), 60'965'224);
  models::ModelOptions options{.name = "alexnet", .classes = 10, .image_size = 63, .dropout = 0};
  auto make = [&] {
    models::Model model = models::make_alexnet_of_two(options);
    model.initialise();
    return of_built(model, 1);
  };
  expect_same_training(make, plan::alexnet_of_two(), 2, {}, kFewSteps);
}

TEST(Parallelize, CountsTheBytesOfTheFormulas) {
  for (int ranks : {2, 3, 4, 8}) {
    comm::run_ranks(ranks, [&](comm::Communicator& comm) {
      Trainee trainee = of_model(kGpt, 2);
      TensorParallel cut = parallelize(*trainee.module, comm, preset_of(kGpt, 8));
      int64_t before = comm.counters().operations, bytes = comm.counters().bytes_sent;
      trainee.loss(0).backward();
      // Two layers of 2 + 2, the embedding, the head's input, and two for the loss.
      EXPECT_EQ(comm.counters().operations - before, 2 * 4 + 1 + 1 + 2);
      // 2 (T - 1) / T of [2, 8, 16] ten times, and of 3 numbers a token; summed over ranks it is exact.
      int64_t elements = 10 * 2 * 8 * 16 + 3 * 2 * 8;
      std::vector<int64_t> sent = {comm.counters().bytes_sent - bytes};
      comm.all_reduce(sent).wait();
      EXPECT_EQ(sent[0], 2 * (ranks - 1) * elements * 8);
    });
  }
}

TEST(Parallelize, CountsReduceScattersAndGathersOfSequences) {
  comm::run_ranks(4, [&](comm::Communicator& comm) {
    Trainee trainee = of_model(kGpt, 2);
    TensorParallel cut = parallelize(*trainee.module, comm, preset_of(kGpt, 8), {.sequence = true});
    int64_t before = comm.counters().operations;
    Tensor loss = trainee.loss(0);
    // Forward: a gather and a reduce-scatter for each of four pairs, the embedding, the head, the loss.
    EXPECT_EQ(comm.counters().operations - before, 4 * 2 + 1 + 1 + 2);
    before = comm.counters().operations;
    loss.backward();
    // The same mirrored, and one sum for each replicated parameter: 6 a layer, ln_f's two, wpe.
    EXPECT_EQ(comm.counters().operations - before, 4 * 2 + 1 + 1 + 2 * 6 + 2 + 1);
  });
}

// Logits far apart, targets at the borders of slices, and some that do not count.
TEST(Parallelize, ComputesCrossEntropyWithoutGatheringLogits) {
  comm::run_ranks(3, [&](comm::Communicator& comm) {
    torch::nn::Linear head(torch::nn::LinearOptions(4, 10).bias(false));
    head->to(torch::kFloat64);
    torch::NoGradGuard no_grad;
    head->weight.copy_(numbers({10, 4}, 1) * 1e4);
    Tensor x = numbers({6, 4}, 2);
    Tensor target = torch::tensor({0, 2, 3, 9, -100, 6}, torch::kLong);
    Tensor expected = torch::cross_entropy_loss(torch::matmul(x, head->weight.t()), target);
    torch::nn::Sequential net(head);
    TensorParallel cut = parallelize(*net, comm, parse_tensor_plan("\"0\" = \"vocabulary\""));
    Tensor logits = net->forward(x);
    EXPECT_EQ(logits.size(1), plan::cut_part(10, 3, comm.rank()).size());
    EXPECT_NEAR(torch::cross_entropy_loss(logits, target).item<double>(), expected.item<double>(),
                1e-10 * expected.item<double>());
    EXPECT_THROW(torch::cross_entropy_loss(logits, torch::full({6}, 10, torch::kLong)), c10::IndexError);
  });
}

TEST(Parallelize, KnowsSlicedLogitsOfAnyShape) {
  // Language models hand [batch, sequence, vocabulary] to fused kernels, which need the whole vocabulary.
  comm::run_ranks(2, [](comm::Communicator& comm) {
    torch::nn::Sequential net(torch::nn::Linear(torch::nn::LinearOptions(4, 10).bias(false)));
    TensorParallel cut = parallelize(*net, comm, parse_tensor_plan("\"0\" = \"vocabulary\""));
    Tensor logits = net->forward(torch::ones({2, 3, 4}));
    ASSERT_EQ(logits.size(-1), 5);
    EXPECT_TRUE(compute::are_sliced_logits(logits));
    EXPECT_TRUE(compute::are_sliced_logits(logits.view({6, 5})));
    EXPECT_FALSE(compute::are_sliced_logits(torch::ones({2, 3, 10})));
  });
}

TEST(Parallelize, TakesAndGathersWholeTensors) {
  comm::run_ranks(3, [&](comm::Communicator& comm) {
    models::Model model = models::build(kGpt);
    TensorParallel cut = parallelize(*model.module, comm, preset_of(kGpt, 8));
    for (const TensorSlice& slice : cut.slices()) {
      Tensor whole = numbers(slice.global_shape, 3);
      EXPECT_TRUE(cut.gather(slice.name, cut.take(slice.name, whole)).equal(whole)) << slice.name;
    }
    EXPECT_EQ(cut.slice("h.0.attn.c_attn.weight").ranges.size(), 3U);
    EXPECT_TRUE(cut.slice("h.0.attn.c_proj.bias").replicated());
    EXPECT_EQ(cut.slice("wte.weight", 2).ranges[0], (plan::CutRange{15, 23}));
  });
}

TEST(Parallelize, RecomputesAndComputesUnderAutocast) {
  comm::run_ranks(2, [&](comm::Communicator& comm) {
    auto plain = std::make_shared<MlpImpl>(), again = std::make_shared<MlpImpl>();
    for (auto& net : {plain, again}) {
      torch::NoGradGuard no_grad;
      for (auto& named : net->named_parameters())
        named.value().copy_(numbers(named.value().sizes().vec(), 1) * 0.3);
    }
    TensorParallel one = parallelize(*plain, comm, parse_tensor_plan(kMlpPlan));
    TensorParallel two = parallelize(*again, comm, parse_tensor_plan(kMlpPlan));
    Tensor x = numbers({4, 6}, 2).requires_grad_();
    plain->forward(x).square().sum().backward();
    auto block = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
      return {again->forward(in[0])};
    };
    yoke::recompute(block, {x.detach().requires_grad_()})[0].square().sum().backward();
    EXPECT_TRUE(plain->up->weight.grad().equal(again->up->weight.grad()));
    plain->to(torch::kFloat);
    AutocastGuard bf16(torch::kCPU, Precision::kBf16);
    Tensor y = plain->up->forward(numbers({4, 6}, 2).to(torch::kFloat));
    EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
  });
}

TEST(Parallelize, NoticesAForwardPassThatExchangesNothing) {
  comm::run_ranks(2, [&](comm::Communicator& comm) {
    auto net = std::make_shared<MlpImpl>();
    TensorParallel cut = parallelize(*net, comm, parse_tensor_plan(kMlpPlan));
    c10::impl::ExcludeDispatchKeyGuard elsewhere(c10::DispatchKey::TESTING_ONLY_GenericMode);
    Tensor y = net->forward(numbers({4, 6}, 1)).sum();
    EXPECT_THROW(y.backward(), std::exception);
  });
}

TEST(Parallelize, DrawsAloneInsideOfPairsAndInCommonOutside) {
  auto draw = [](int rank) {
    torch::manual_seed(5);
    Tensor own = with_random_of_rank(rank, torch::kCPU, [] { return torch::rand({8}); });
    return std::pair(own, torch::rand({8}));
  };
  auto [a, after_a] = draw(0);
  auto [b, after_b] = draw(1);
  EXPECT_FALSE(a.equal(b));
  EXPECT_TRUE(after_a.equal(after_b));
}

TEST(Parallelize, RefusesBeforeAnythingChanges) {
  comm::run_ranks(2, [&](comm::Communicator& comm) {
    auto net = std::make_shared<MlpImpl>();
    auto error = [&](const char* plan) -> std::string {
      try {
        TensorParallel cut = parallelize(*net, comm, parse_tensor_plan(plan));
      } catch (const ConfigError& refused) {
        return refused.what();
      }
      return "no error";
    };
    EXPECT_THAT(error("upp = \"columns\""), HasSubstr("\"upp\" names no layer"));
    EXPECT_THAT(error("up = \"columns\""), HasSubstr("no layer after it"));
    EXPECT_THAT(error("norm = \"columns\""), HasSubstr("'norm' is a LayerNorm"));
    EXPECT_EQ(net->up->weight.size(0), 11);
  });
}

}  // namespace
}  // namespace yoke::parallel::slice_testing
