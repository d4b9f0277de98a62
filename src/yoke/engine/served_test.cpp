// What data parallel training does, parameter servers do: fp16 with loss scaling, statistics of all batches,
// compressed gradients; and embeddings of which a batch uses few rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <map>
#include <mutex>

#include "yoke/base/error.h"
#include "yoke/comm/run_ranks.h"
#include "yoke/engine/verify_trainee.h"
#include "yoke/models/wrap.h"
#include "yoke/parallel/membership.h"

namespace yoke::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int64_t kRows = 50, kWidth = 4;

// An embedding whose gradients have the rows that were used, and a layer over it.
models::Model words(bool sparse, bool tied = false) {
  struct Words : torch::nn::Module {
    torch::nn::Embedding table{nullptr};
    torch::nn::Linear head{nullptr};
  };
  auto module = std::make_shared<Words>();
  module->table = module->register_module(
      "table", torch::nn::Embedding(torch::nn::EmbeddingOptions(kRows, kWidth).sparse(sparse)));
  module->head = module->register_module("head", torch::nn::Linear(kWidth, kRows));
  auto forward = [module, tied](const torch::Tensor& tokens) {
    const torch::Tensor inner = module->head->forward(torch::tanh(module->table->forward(tokens)));
    return tied ? inner + torch::matmul(module->table->forward(tokens), module->table->weight.t()) : inner;
  };
  auto loss = [](const models::Tensors& outputs, const torch::Tensor& target) {
    return torch::nn::functional::cross_entropy(outputs[0].flatten(0, 1), target.flatten());
  };
  return models::wrap(module, {models::block("words", forward, {module})}, loss,
                      {.kind = SampleKind::kTokens, .shape = {6}, .classes = kRows});
}

models::Model normed() {
  torch::nn::Sequential layers(torch::nn::Linear(8, 12), torch::nn::BatchNorm1d(12), torch::nn::Tanh(),
                               torch::nn::Linear(12, 3));
  return models::wrap(layers, {}, {.kind = SampleKind::kVector, .shape = {8}, .classes = 3});
}

void register_models() {
  static const bool once = [] {
    models::register_model("words", [](const models::ModelOptions&) { return words(true); });
    models::register_model("dense_words", [](const models::ModelOptions&) { return words(false); });
    models::register_model("other_words", [](const models::ModelOptions&) {
      models::Model model = words(true);
      models::Block& block = model.blocks[0];
      block.forward = [forward = block.forward](const models::Tensors& inputs) {
        return forward({(inputs[0] + 1).remainder(kRows)});
      };
      return model;
    });
    models::register_model("tied_words",
                           [](const models::ModelOptions&) { return words(true, /*tied=*/true); });
    models::register_model("normed", [](const models::ModelOptions&) { return normed(); });
    return true;
  }();
  static_cast<void>(once);
}

WorkerOptions options_of(const std::string& model, const std::string& sync) {
  register_models();
  WorkerOptions options;
  options.model.name = model;
  if (model == "mlp") options.model.sizes = {8, 16, 3};
  options.optimizer.lr = 0.1;
  options.optimizer.momentum = 0;
  options.compute.threads = 1;
  options.batch_size = 12;
  options.parallel.sync = sync;
  options.ps.servers = 2;
  options.ps.timeout = 60;
  return options;
}

Differences apart_from_one_device(const WorkerOptions& worker, int ranks) {
  VerifyOptions options;
  options.parallel = worker;
  options.alone = worker.alone();
  options.ranks = ranks;
  options.parallel.batch_size = worker.batch_size / ranks;
  options.data.samples = 48;
  options.steps = 4;
  return verify(options).worst;
}

struct Step {
  double weight = 1;  // of the loss: a large one overflows fp16
  bool updated = true;
  std::optional<double> scale{};  // before it
};
struct Trained {
  std::vector<Step> steps;
  std::map<std::string, torch::Tensor> parameters;
  int64_t sent = 0;
};

// Trains on the threads of `ranks`; `weight(rank, step)` multiplies the loss. What rank 0 has seen.
Trained train(const WorkerOptions& options, int ranks, int64_t count,
              const std::function<double(int rank, int64_t step)>& weight,
              const std::function<models::Tensors(int rank, int64_t step)>& batch) {
  const std::map<std::string, torch::Tensor> start = [&] {
    std::map<std::string, torch::Tensor> values;
    const auto one = make_worker(options.alone());
    for (const auto& item : one->model.module->named_parameters())
      values[item.key()] = item.value().detach().clone();
    return values;
  }();
  Trained result;
  parallel::LocalJob job(options, options.optimizer, ranks);
  comm::run_ranks(ranks, [&](comm::Communicator& comm) {
    WorkerOptions own = on_ranks(options, comm);
    own.links.messenger = job.messenger(comm.rank());
    if (own.links.messenger != nullptr) own.links.world = nullptr;
    Trainee trainee(own);
    trainee.start_from(start);
    // It grows with the first step without an overflow, and then never.
    if (own.compute.precision == "fp16") trainee.worker->scaler.restore(65536, 1999);
    parallel::Strategy& strategy = *trainee.worker->strategy;
    for (int64_t i = 0; i < count; ++i) {
      Step step{.weight = weight(comm.rank(), i)};
      strategy.acquire();
      step.scale = strategy.loss_scale();
      const models::Tensors sample = batch(comm.rank(), i);
      const torch::Tensor loss = strategy.compute({sample[0]}, sample[1], {step.weight, true, 0.1}).loss;
      strategy.agree({loss, 0});
      strategy.settle();
      step.updated = strategy.commit({0.1, false}).updated;
      if (comm.rank() == 0) result.steps.push_back(step);
    }
    strategy.drain();
    comm.barrier().wait();
    if (comm.rank() != 0) return;
    result.sent = strategy.traffic().data;
    for (const auto& item : trainee.worker->model.module->named_parameters())
      result.parameters[item.key()] = item.value().detach().clone();
  });
  job.finish();
  return result;
}

models::Tensors vectors(int rank, int64_t step) {
  torch::Generator random = at::detail::createCPUGenerator(static_cast<uint64_t>(100 * rank + step + 1));
  return {torch::randn({4, 8}, random), torch::randint(3, {4}, random, torch::kLong)};
}

models::Tensors tokens(int rank, int64_t step) {
  const int64_t first = (7 * rank + 3 * step) % (kRows - 6);
  const torch::Tensor input = torch::arange(first, first + 6).remainder(first + 4).unsqueeze(0);
  return {input, input.roll(1, 1).contiguous()};
}

double largest_difference(const Trained& a, const Trained& b) {
  double apart = 0;
  for (const auto& [name, value] : a.parameters)
    apart = std::max(apart, (value - b.parameters.at(name)).abs().max().item<double>());
  return apart;
}

std::vector<double> scales_of(const Trained& run) {
  std::vector<double> scales;
  for (const Step& step : run.steps) scales.push_back(step.scale.value_or(0));
  return scales;
}

TEST(Served, Fp16SkipsTheUpdatesThatDataParallelSkips) {
  const auto weight = [](int rank, int64_t step) {
    return rank == 1 && (step == 2 || step == 7) ? 1e6 : 1.0;
  };
  for (const char* optimizer : {"sgd", "adamw"})
    for (const double clip_norm : {0.0, 0.05}) {
      WorkerOptions reduced = options_of("mlp", "allreduce");
      reduced.compute.precision = "fp16";
      reduced.optimizer.optimizer = optimizer;
      reduced.optimizer.clip_norm = clip_norm;
      WorkerOptions served = reduced;
      served.parallel.sync = "ps";
      const Trained expected = train(reduced, 3, 12, weight, vectors),
                    run = train(served, 3, 12, weight, vectors);
      const std::vector<double> scales = scales_of(run);
      EXPECT_EQ(scales, scales_of(expected)) << optimizer;
      EXPECT_LT(scales[3], scales[2]) << "an overflow on another rank";
      EXPECT_EQ(scales[1], 2 * scales[0]) << "it grows";
      for (size_t i = 0; i < run.steps.size(); ++i) EXPECT_EQ(run.steps[i].updated, i != 2 && i != 7) << i;
      EXPECT_LT(largest_difference(run, expected), 1e-5) << optimizer;
    }
}

TEST(Served, Fp16LeavesOutOneMinibatchUnderAsynchronousRules) {
  const auto weight = [](int, int64_t step) { return step == 2 ? 1e6 : 1.0; };
  WorkerOptions alone = options_of("mlp", "allreduce");
  alone.compute.precision = "fp16";
  WorkerOptions served = alone;
  served.parallel.sync = "ps";
  served.ps.policy = "async";
  const Trained expected = train(alone, 1, 8, weight, vectors), run = train(served, 1, 8, weight, vectors);
  EXPECT_EQ(scales_of(run), scales_of(expected));
  for (size_t i = 0; i < run.steps.size(); ++i) EXPECT_EQ(run.steps[i].updated, i != 2) << i;
  EXPECT_LT(largest_difference(run, expected), 1e-6);
}

TEST(Served, StatisticsOfAllBatchesEqualOneDevice) {
  WorkerOptions served = options_of("normed", "ps");
  served.sync_batchnorm = true;
  served.ps.on_worker_loss = "stop";
  for (int ranks : {2, 3}) EXPECT_LT(apart_from_one_device(served, ranks).largest(), 1e-10) << ranks;
  served.sync_batchnorm = false;
  EXPECT_GT(apart_from_one_device(served, 2).largest(), 1e-3) << "their own statistics are others";
}

TEST(Served, HooksCompressPushesByTheirFormula) {
  const auto one = [](int, int64_t) { return 1.0; };
  const auto run = [&](const std::string& hook) {
    WorkerOptions served = options_of("mlp", "ps");
    served.model.sizes = {8, 256, 3};
    served.ddp.hook = hook;
    return train(served, 2, 10, one, vectors);
  };
  const Trained plain = run("none");
  const int64_t n = 8 * 256 + 256 + 256 * 3 + 3;
  EXPECT_EQ(plain.sent, 10 * 4 * n);
  for (const auto& [hook, bytes] : std::map<std::string, int64_t>{{"bf16", 2 * n}, {"fp16", 2 * n}}) {
    const Trained compressed = run(hook);
    EXPECT_EQ(compressed.sent, 10 * bytes) << hook;
    EXPECT_LT(largest_difference(compressed, plain), 1e-3) << hook;
    EXPECT_GT(largest_difference(compressed, plain), 0) << hook;
  }
  for (const char* hook : {"int8", "sign", "topk:0.1"}) {
    const Trained compressed = run(hook);
    EXPECT_LT(compressed.sent, plain.sent / 3) << hook;
    EXPECT_LT(largest_difference(compressed, plain), 0.3) << hook;
  }
}

TEST(Served, EmbeddingsByRowsEqualOneDevice) {
  for (const char* optimizer : {"sgd", "adagrad"})
    for (int ranks : {1, 2, 3}) {
      WorkerOptions served = options_of("words", "ps");
      served.optimizer.optimizer = optimizer;
      served.ps.sparse = "on";
      EXPECT_LT(apart_from_one_device(served, ranks).largest(), 1e-10) << optimizer << " " << ranks;
    }
}

// Also rows that no batch names for some steps, whatever the rate was then.
TEST(Served, PenaltiesOfEmbeddingsByRowsEqualOneDevice) {
  for (const auto& [l1, l2] : {std::pair(0.02, 0.0), std::pair(0.0, 0.5), std::pair(0.02, 0.5)})
    for (int ranks : {1, 2, 3}) {
      WorkerOptions served = options_of("words", "ps");
      served.optimizer.optimizer = "proximal";
      served.optimizer.l1 = l1;
      served.optimizer.l2 = l2;
      served.ps.sparse = "on";
      EXPECT_LT(apart_from_one_device(served, ranks).largest(), 1e-10) << l1 << " " << l2 << " " << ranks;
    }
}

TEST(Served, OnlyRowsThatABatchUsesTravel) {
  const auto one = [](int, int64_t) { return 1.0; };
  const int64_t steps = 6;
  int64_t touched = 0;
  for (int64_t step = 0; step < steps; ++step)
    touched += std::get<0>(at::_unique(tokens(0, step)[0])).numel();
  // Keys to pull them, values to push them (the servers have the list by then); the layer besides.
  const int64_t layer = kWidth * kRows + kRows;
  const Trained run = train(options_of("words", "ps"), 2, steps, one, tokens);
  EXPECT_EQ(run.sent, touched * 8 + touched * kWidth * 4 + steps * layer * 4);
  const Trained dense = train(options_of("dense_words", "ps"), 2, steps, one, tokens);
  EXPECT_EQ(dense.sent, steps * (layer + kRows * kWidth) * 4);
  EXPECT_LT(largest_difference(run, dense), 1e-6);
}

TEST(Served, EmbeddingsThatCannotTravelByRowsAreRefused) {
  const auto refuses = [](const char* model, const char* text) {
    EXPECT_THAT(
        [&] {
          train(
              options_of(model, "ps"), 1, 2, [](int, int64_t) { return 1.0; }, tokens);
        },
        ThrowsMessage<std::exception>(HasSubstr(text)))
        << model;
  };
  refuses("tied_words", "another layer uses it, too");
  refuses("other_words", "was not pulled");
  WorkerOptions off = options_of("tied_words", "ps");
  off.ps.sparse = "off";
  EXPECT_LT(apart_from_one_device(off, 2).largest(), 1e-10);
}

}  // namespace
}  // namespace yoke::engine
