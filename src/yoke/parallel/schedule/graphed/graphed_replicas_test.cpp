// Recorded steps of replicas beside the same steps one by one, bit for bit. Without a GPU only the steps
// before the recording run; tests/gpu/graphed_replicas.py compares whole runs on one.
#include "yoke/parallel/schedule/graphed/graphed_replicas.h"

#include <gtest/gtest.h>

#include <memory>
#include <mutex>

#include "yoke/comm/run_ranks.h"
#include "yoke/models/test_batch.h"

namespace yoke::parallel {
namespace {

constexpr int kReplicas = 2;
constexpr int64_t kReplicaSteps = 4;  // one forms the buckets, three come before the recording

struct ReplicaCase {
  models::ModelOptions model;
  std::string optimizer = "sgd";
  int64_t accumulate = 1;
  double clip_norm = 0;
  std::vector<int64_t> batches = {4, 4, 4, 4};  // sizes, by step
};

models::ModelOptions smaller_gpt() {
  models::ModelOptions options;
  options.name = "gpt2";
  options.layers = 2;
  options.width = 32;
  options.heads = 2;
  options.vocabulary = 100;
  options.positions = 8;
  return options;
}

struct ReplicaTraining {
  std::vector<torch::Tensor> numbers;  // losses, norms, weights
  int64_t bytes_sent = 0;
  std::optional<double> noise;
};

template <class AnyStrategy>
ReplicaTraining train_replica(const ReplicaCase& c, comm::Communicator& comm, std::mutex& seeds) {
  std::unique_lock lock(seeds);  // they are the process's
  torch::manual_seed(7);
  models::Model model = models::build(c.model);
  std::vector<models::TestBatch> batches;
  for (int64_t step = 0; step < kReplicaSteps; ++step)
    for (int64_t i = 0; i < c.accumulate; ++i)
      batches.push_back(models::make_test_batch(model.sample, c.batches[static_cast<size_t>(step)]));
  lock.unlock();
  std::vector<optim::NamedTensor> parameters;
  for (const auto& item : model.module->named_parameters()) parameters.emplace_back(item.key(), item.value());
  optim::OptimizerOptions how;
  how.optimizer = c.optimizer;
  how.momentum = 0.9;
  auto optimizer = optim::make(how, parameters);
  optim::GradScaler no_scale({.enabled = false});
  OneDeviceOptions options;
  options.clip_norm = c.clip_norm;
  AnyStrategy strategy(model, *optimizer, no_scale, options, comm, DdpOptions{.bucket_bytes = 20'000});
  ReplicaTraining result;
  for (int64_t step = 0; step < kReplicaSteps; ++step) {
    strategy.acquire();
    StepNews news;
    for (int64_t i = 0; i < c.accumulate; ++i) {
      const models::TestBatch& batch = batches[static_cast<size_t>(step * c.accumulate + i)];
      const MicroBatch micro{1.0 / static_cast<double>(c.accumulate), i + 1 == c.accumulate};
      std::vector<torch::Tensor> inputs;
      for (const torch::Tensor& input : batch.inputs)
        inputs.push_back(input.is_floating_point() ? input * (1 + comm.rank()) : input.clone());
      news.loss = strategy.compute(inputs, batch.target, micro).loss;
      result.numbers.push_back(news.loss.clone());
    }
    result.numbers.push_back(strategy.agree(news).loss);
    const CommitResult done = strategy.commit({0.05, /*measure_norm=*/step % 2 == 1});
    result.numbers.push_back(torch::tensor(done.grad_norm.value_or(-1)));
  }
  for (const torch::Tensor& weight : model.module->parameters())
    result.numbers.push_back(weight.detach().clone());
  result.bytes_sent = strategy.traffic().data;
  result.noise = strategy.noise_scale();
  return result;
}

template <class AnyStrategy>
std::vector<ReplicaTraining> train_replicas(const ReplicaCase& c) {
  std::vector<ReplicaTraining> results(kReplicas);
  std::mutex seeds;
  comm::run_ranks(kReplicas, [&](comm::Communicator& comm) {
    results[static_cast<size_t>(comm.rank())] = train_replica<AnyStrategy>(c, comm, seeds);
  });
  return results;
}

void expect_the_same_bits(const ReplicaCase& c) {
  SCOPED_TRACE(c.model.name + " " + c.optimizer + " " + std::to_string(c.accumulate));
  const std::vector<ReplicaTraining> expected = train_replicas<DdpStrategy>(c),
                                     recorded = train_replicas<GraphedReplicas>(c);
  for (size_t rank = 0; rank < kReplicas; ++rank) {
    ASSERT_EQ(recorded[rank].numbers.size(), expected[rank].numbers.size());
    for (size_t i = 0; i < expected[rank].numbers.size(); ++i)
      EXPECT_TRUE(recorded[rank].numbers[i].equal(expected[rank].numbers[i])) << "rank " << rank << ", " << i;
    EXPECT_EQ(recorded[rank].bytes_sent, expected[rank].bytes_sent);
    EXPECT_EQ(recorded[rank].noise, expected[rank].noise);
  }
}

TEST(GraphedReplicas, TrainsAsReplicasDo) {
  expect_the_same_bits({{.name = "lenet"}});
  expect_the_same_bits({smaller_gpt(), "adamw", 1, /*clip_norm=*/0.5});
}

TEST(GraphedReplicas, AddsTheGradientsOfMicroBatches) {
  expect_the_same_bits({{.name = "lenet"}, "sgd", /*accumulate=*/3});
  expect_the_same_bits({smaller_gpt(), "adamw", /*accumulate=*/2, /*clip_norm=*/0.5});
}

TEST(GraphedReplicas, TakesBatchesOfAnotherShape) {
  expect_the_same_bits({{.name = "lenet"}, "sgd", 1, 0, {4, 4, 6, 6}});
  expect_the_same_bits({smaller_gpt(), "adamw", 2, 0, {4, 6, 4, 2}});
}

}  // namespace
}  // namespace yoke::parallel
