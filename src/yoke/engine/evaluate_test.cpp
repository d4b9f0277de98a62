// What is reported is what is saved: BatchNorm's statistics of all ranks but one are nobody's.
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <map>
#include <mutex>

#include "yoke/comm/run_ranks.h"
#include "yoke/engine/evaluate.h"
#include "yoke/engine/run_state.h"
#include "yoke/parallel/common/ddp/ddp_strategy.h"
#include "yoke/parallel/common/one_device.h"
#include "yoke/parallel/schedule/pipeline/pipeline_strategy.h"
#include "yoke/parallel/sync/sharded/zero_strategy.h"

namespace yoke::engine {
namespace {

constexpr int64_t kFeatures = 4;

class NumbersDataset final : public data::Dataset {
 public:
  int64_t size() const override { return 37; }
  SampleSpec spec() const override { return {}; }
  data::Batch gather(std::span<const int64_t> indices) const override {
    data::Batch batch;
    torch::Tensor at = torch::tensor(std::vector<int64_t>(indices.begin(), indices.end()), torch::kFloat64);
    torch::Tensor x = torch::sin(at.view({-1, 1}) * torch::arange(1, kFeatures + 1)) * (at.view({-1, 1}) + 1);
    batch.inputs = {x};
    batch.target = torch::cos(at);
    batch.samples = static_cast<int64_t>(indices.size());
    return batch;
  }
};

// Norm, linear, norm: two blocks with statistics.
models::Model normalising_model() {
  torch::manual_seed(3);
  models::Model model;
  model.name = "normalising";
  model.module = std::make_shared<torch::nn::Module>();
  torch::nn::BatchNorm1d first(kFeatures), second(kFeatures);
  torch::nn::Linear between(kFeatures, kFeatures);
  model.module->register_module("first", first);
  model.module->register_module("between", between);
  model.module->register_module("second", second);
  model.blocks = {{"first",
                   [=](const models::Tensors& x) mutable { return models::Tensors{first(x[0])}; },
                   {first.ptr()}},
                  {"second",
                   [=](const models::Tensors& x) mutable { return models::Tensors{second(between(x[0]))}; },
                   {between.ptr(), second.ptr()}}};
  model.loss = [](const models::Tensors& outputs, const torch::Tensor& target) {
    return (outputs[0].sum(1) - target).square().mean();
  };
  model.module->to(torch::kFloat64);
  return model;
}

std::vector<optim::NamedTensor> parameters_of(const models::Model& model) {
  std::vector<optim::NamedTensor> parameters;
  for (const auto& item : model.module->named_parameters()) parameters.emplace_back(item.key(), item.value());
  return parameters;
}

optim::OptimizerOptions plain_sgd() {
  optim::OptimizerOptions options;
  options.optimizer = "sgd";
  return options;
}

// Each rank trains on samples of its own, so that statistics drift apart.
void train_on(Worker& worker, int64_t part) {
  NumbersDataset dataset;
  for (int64_t step = 0; step < 3; ++step) {
    std::vector<int64_t> indices(8);
    for (size_t i = 0; i < indices.size(); ++i)
      indices[i] = (part * 13 + step * 5 + static_cast<int64_t>(i)) % dataset.size();
    data::Batch batch = dataset.gather(indices);
    worker.strategy->acquire();
    worker.strategy->compute(batch.inputs, batch.target, {1, true, 0.01});
    worker.strategy->agree({torch::zeros({}), 0});
    worker.strategy->commit({0.01, false});
  }
  worker.strategy->drain();
}

Worker worker_of(models::Model model) {
  Worker worker;
  worker.model = std::move(model);
  worker.place = [](const torch::Tensor& input) { return input; };
  worker.scaler = optim::GradScaler({.enabled = false});
  return worker;
}

// The loss of a model that was saved and loaded on one device.
double loss_alone(const std::vector<optim::NamedTensor>& saved) {
  Worker worker = worker_of(normalising_model());
  torch::NoGradGuard no_grad;
  std::map<std::string, torch::Tensor> values(saved.begin(), saved.end());
  for (auto& [name, tensor] : named_tensors(*worker.model.module)) tensor.copy_(values.at(name));
  worker.optimizer = optim::make(plain_sgd(), parameters_of(worker.model));
  worker.strategy = std::make_unique<parallel::OneDevice>(worker.model, *worker.optimizer, worker.scaler,
                                                          parallel::OneDeviceOptions{});
  return evaluate(worker, NumbersDataset(), 5, [] { return false; })->loss;
}

std::vector<optim::NamedTensor> copies_of_tensors(const std::vector<optim::NamedTensor>& tensors) {
  std::vector<optim::NamedTensor> copies;
  for (const auto& [name, tensor] : tensors) copies.emplace_back(name, tensor.detach().clone());
  return copies;
}

TEST(Evaluate, ReplicasReportWhatTheFirstOneSaves) {
  std::mutex building;  // seeds are the process's
  for (int64_t zero : {0, 1, 2}) {
    std::vector<double> reported(3);
    std::vector<optim::NamedTensor> saved;
    comm::run_ranks(3, [&](comm::Communicator& comm) {
      std::unique_lock lock(building);
      Worker worker = worker_of(normalising_model());
      lock.unlock();
      std::optional<parallel::Shards> shards;
      if (zero > 0) shards.emplace(*worker.model.module, comm, DdpOptions{});
      worker.optimizer = optim::make(plain_sgd(), zero > 0 ? shards->owned() : parameters_of(worker.model));
      if (zero > 0)
        worker.strategy = std::make_unique<parallel::ZeroStrategy>(
            worker.model, *worker.optimizer, worker.scaler, parallel::OneDeviceOptions{}, comm, DdpOptions{},
            *shards, zero);
      else
        worker.strategy = std::make_unique<parallel::DdpStrategy>(
            worker.model, *worker.optimizer, worker.scaler, parallel::OneDeviceOptions{}, comm, DdpOptions{});
      train_on(worker, comm.rank());
      // As a checkpoint takes it, whether or not somebody evaluates.
      if (comm.rank() == 0) saved = copies_of_tensors(named_tensors(*worker.model.module));
      auto result = evaluate(worker, NumbersDataset(), 5, [] { return false; });
      reported[static_cast<size_t>(comm.rank())] = result->loss;
      if (comm.rank() == 0) {
        auto after = named_tensors(*worker.model.module);
        for (size_t i = 0; i < saved.size(); ++i) EXPECT_TRUE(after[i].second.equal(saved[i].second));
      }
      comm.barrier().wait();
      worker.strategy.reset();  // stands on the shards
    });
    for (double loss : reported) EXPECT_NEAR(loss / loss_alone(saved), 1, 1e-12) << zero;
  }
}

TEST(Evaluate, CopiesOfAPipelineReportWhatIsSaved) {
  std::mutex building;
  std::vector<double> reported(4);
  std::vector<optim::NamedTensor> saved;
  comm::run_ranks(4, [&](comm::Communicator& comm) {
    std::unique_lock lock(building);
    Worker worker = worker_of(normalising_model());
    lock.unlock();
    parallel::PipelineOptions pipeline;
    pipeline.microbatches = 2;
    parallel::PipelineStage stage(
        worker.model, parallel::make_layout(pipeline, /*stages=*/2, /*copies=*/2, {1, 1}, 8), comm);
    worker.optimizer = optim::make(plain_sgd(), stage.versions.newest());
    worker.strategy = std::make_unique<parallel::PipelineStrategy>(
        worker.model, stage, *worker.optimizer, worker.scaler, parallel::PipelineStrategyOptions{});
    train_on(worker, stage.place.copy);
    auto whole = whole_model(worker);
    if (comm.rank() == 0) saved = copies_of_tensors(whole);
    auto result = evaluate(worker, NumbersDataset(), 5, [] { return false; });
    reported[static_cast<size_t>(comm.rank())] = result->loss;
    worker.strategy.reset();  // stands on the stage
  });
  for (double loss : reported) EXPECT_NEAR(loss / loss_alone(saved), 1, 1e-12);
}

// 40 samples of 7 classes; the file of the fourth is broken.
class ClassesDataset final : public data::Dataset {
 public:
  int64_t size() const override { return 40; }
  SampleSpec spec() const override { return {SampleKind::kVector, {7}, 7}; }
  std::vector<std::string> class_names() const override { return {"a", "b", "c", "d", "e", "f", "g"}; }
  data::Batch gather(std::span<const int64_t> indices) const override {
    const torch::Tensor at = torch::tensor(std::vector<int64_t>(indices.begin(), indices.end()));
    const torch::Tensor classes = at.remainder(7);
    // Most are recognised; every third one looks like the next class.
    const torch::Tensor seen = (classes + at.remainder(3).eq(0).to(torch::kInt64)).remainder(7);
    data::Batch batch;
    batch.inputs = {torch::one_hot(seen, 7).to(torch::kFloat64) + torch::sin(at.view({-1, 1})) * 0.1};
    batch.target = torch::where(at.eq(3), torch::full_like(at, data::kNotCounted), classes);
    batch.samples = static_cast<int64_t>(indices.size());
    return batch;
  }
};

models::Model classifier() {
  models::Model model;
  model.name = "classifier";
  model.sample = ClassesDataset().spec();
  model.module = std::make_shared<torch::nn::Module>();
  model.module->register_parameter("scale", torch::ones({7}, torch::kFloat64));
  torch::Tensor scale = model.module->parameters()[0];
  model.blocks = {
      {"scale", [=](const models::Tensors& x) { return models::Tensors{x[0] * scale}; }, {model.module}}};
  model.loss = [](const models::Tensors& outputs, const torch::Tensor& target) {
    return torch::cross_entropy_loss(outputs[0], target);
  };
  model.correct = [](const models::Tensors& outputs, const torch::Tensor& target) {
    return (outputs[0].argmax(1) == target).sum();
  };
  return model;
}

Evaluation classes_on(int ranks) {
  std::mutex evaluating;
  std::optional<Evaluation> first;
  comm::run_ranks(ranks, [&](comm::Communicator& comm) {
    Worker worker = worker_of(classifier());
    worker.optimizer = optim::make(plain_sgd(), parameters_of(worker.model));
    worker.strategy = std::make_unique<parallel::DdpStrategy>(
        worker.model, *worker.optimizer, worker.scaler, parallel::OneDeviceOptions{}, comm, DdpOptions{});
    const auto result = evaluate(worker, ClassesDataset(), 6, [] { return false; });
    std::lock_guard lock(evaluating);
    if (!first) first = result;
    EXPECT_EQ(first->classes.results->confusion, result->classes.results->confusion) << "on every rank";
  });
  return *first;
}

TEST(Evaluate, CountsClassesOverRanksAndLeavesBrokenFilesOut) {
  const Evaluation alone = classes_on(1);
  ASSERT_TRUE(alone.classes.results.has_value());
  const metrics::ClassResults& classes = *alone.classes.results;
  EXPECT_EQ(classes.names.size(), 7u);
  EXPECT_EQ(alone.samples, 39);
  EXPECT_EQ(classes.samples, (std::vector<int64_t>{6, 6, 6, 5, 6, 5, 5})) << "sample 3 is of class 3";
  EXPECT_EQ(classes.correct[0] + classes.confusion[0][1], 6);
  EXPECT_NEAR(*alone.accuracy, 26.0 / 39, 1e-12);
  EXPECT_GT(*alone.classes.top5, *alone.accuracy);
  for (int ranks : {2, 3}) {
    const Evaluation together = classes_on(ranks);
    EXPECT_EQ(together.classes.results->confusion, classes.confusion);
    EXPECT_EQ(together.classes.top5, alone.classes.top5);
    EXPECT_EQ(together.accuracy, alone.accuracy);
    EXPECT_NEAR(together.loss, alone.loss, 1e-12);
  }
}

}  // namespace
}  // namespace yoke::engine
