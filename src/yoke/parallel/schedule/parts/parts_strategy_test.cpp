#include "yoke/parallel/schedule/parts/parts_strategy.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <map>
#include <mutex>
#include <random>

#include "yoke/base/error.h"
#include "yoke/comm/run_ranks.h"
#include "yoke/models/wrap.h"
#include "yoke/parallel/common/one_device.h"
#include "yoke/plan/partition/partition.h"

namespace yoke::parallel::parts_test {
namespace {

using models::Block;
using models::Model;
using models::Tensors;
using testing::HasSubstr;

constexpr int64_t kWidth = 6, kClasses = 3;

struct Task {
  int nodes = 9;
  unsigned seed = 1;  // of the graph
  std::vector<int> part_of;
  int parts = 2;
  int copies = 1;
  int64_t samples = 12;
  int64_t accumulate = 1;
  double clip_norm = 0;
  bool recompute = false;
  bool tied = false;  // the first and the last layer are one
  int nan_step = -1;
  int steps = 3;
};

// Layers that each read one to three earlier ones, an output in the middle beside the last.
Model random_graph(const Task& task) {
  torch::manual_seed(7);
  std::mt19937 random(task.seed);
  auto root = std::make_shared<torch::nn::Module>("random");
  std::vector<Block> nodes;
  std::map<std::string, int> readers;
  torch::nn::Linear first{nullptr};
  for (int i = 0; i < task.nodes; ++i) {
    std::vector<std::string> inputs;
    for (unsigned k = 0; k < 1 + random() % 3; ++k) {
      const auto from = random() % static_cast<unsigned>(i + 1);
      std::string name = from == 0 ? "input" : fmt::format("n{}", from - 1);
      if (std::find(inputs.begin(), inputs.end(), name) == inputs.end()) inputs.push_back(name);
    }
    for (const std::string& one : inputs) ++readers[one];
    torch::nn::Linear layer{nullptr};
    if (task.tied && i + 1 == task.nodes) {
      layer = first;
    } else {
      layer = torch::nn::Linear(kWidth, kWidth);
      root->register_module(fmt::format("layer{}", i), layer);
    }
    if (i == 0) first = layer;
    auto forward = [layer](const Tensors& given) mutable {
      torch::Tensor sum = given.at(0);
      for (size_t j = 1; j < given.size(); ++j) sum = sum + given[j];
      return torch::tanh(layer(sum));
    };
    nodes.push_back(models::node(fmt::format("n{}", i), inputs, forward, {layer.ptr()}));
  }
  // The head reads whatever nobody else does; n1 goes to the loss as well.
  std::vector<std::string> loose;
  for (int i = 0; i < task.nodes; ++i)
    if (readers[fmt::format("n{}", i)] == 0) loose.push_back(fmt::format("n{}", i));
  torch::nn::Linear head(kWidth, kClasses);
  root->register_module("head", head);
  nodes.push_back(models::node(
      "head", loose, [head](const Tensors& given) mutable { return head(torch::stack(given).sum(0)); },
      {head.ptr()}));
  root->to(torch::kDouble);
  auto loss = [](const Tensors& outputs, const torch::Tensor& target) {
    return torch::cross_entropy_loss(outputs.at(0), target) + 0.1 * outputs.at(1).square().mean();
  };
  return models::wrap_graph(root, nodes, {"head", "n1"}, loss);
}

struct Batch {
  Tensors inputs;
  torch::Tensor target;
};

std::vector<Batch> batches_of(const Task& task) {
  torch::manual_seed(5);
  std::vector<Batch> batches;
  for (int i = 0; i < task.steps; ++i)
    batches.push_back(
        {{torch::randn({task.samples, kWidth}, torch::kDouble)}, torch::randint(kClasses, {task.samples})});
  if (task.nan_step >= 0)
    batches[static_cast<size_t>(task.nan_step)].inputs[0].fill_(std::numeric_limits<double>::quiet_NaN());
  return batches;
}

Batch part_of(const Batch& whole, int64_t part, int64_t parts) {
  const int64_t rows = whole.target.size(0) / parts;
  return {{whole.inputs[0].narrow(0, part * rows, rows)}, whole.target.narrow(0, part * rows, rows)};
}

optim::OptimizerOptions optimizer_of(const Task& task) {
  optim::OptimizerOptions options;
  options.optimizer = "sgd";
  options.momentum = 0.9;
  options.clip_norm = task.clip_norm;
  return options;
}

struct Result {
  std::vector<double> losses, norms;
  std::vector<bool> updated;
  std::map<std::string, torch::Tensor> state;
  std::string not_finite;
  torch::Tensor evaluated;
  int64_t sent = 0, sent_back = 0;
};

void note_state(Result& result, const std::vector<StatePiece>& state) {
  for (const StatePiece& piece : state)
    if (!piece.is_list() && piece.holder == 0) {
      EXPECT_TRUE(result.state.emplace(piece.name, piece.values.clone()).second) << piece.name;
    }
}

// All steps of a strategy whose batches are part `part` of `parts`.
void train(const Task& task, const std::vector<Batch>& batches, Strategy& strategy, int64_t part,
           int64_t parts, Result& result) {
  for (const Batch& whole : batches) {
    const Batch own = part_of(whole, part, parts);
    strategy.acquire();
    torch::Tensor loss = torch::zeros({}, torch::kDouble);
    for (int64_t i = 0; i < task.accumulate; ++i) {
      const Batch batch = part_of(own, i, task.accumulate);
      const double weight = 1.0 / static_cast<double>(task.accumulate);
      loss +=
          weight * strategy.compute(batch.inputs, batch.target, {weight, i + 1 == task.accumulate, 0.1}).loss;
    }
    result.losses.push_back(strategy.agree({loss, 0}).loss.item<double>());
    if (task.nan_step >= 0 && result.not_finite.empty())
      result.not_finite = strategy.first_non_finite_gradient().value_or("");
    CommitResult commit = strategy.commit({0.1, true});
    result.norms.push_back(commit.grad_norm.value_or(0));
    result.updated.push_back(commit.updated);
  }
}

Result run_alone(const Task& task) {
  Result result;
  Model model = random_graph(task);
  NamedTensors parameters;
  for (const auto& item : model.module->named_parameters()) parameters.emplace_back(item.key(), item.value());
  auto optimizer = optim::make(optimizer_of(task), parameters);
  optim::GradScaler scaler({.enabled = false});
  OneDeviceOptions options;
  options.clip_norm = task.clip_norm;
  OneDevice device(model, *optimizer, scaler, options);
  const std::vector<Batch> batches = batches_of(task);
  train(task, batches, device, 0, 1, result);
  note_state(result, device.state());
  torch::NoGradGuard no_grad;
  result.evaluated = device.forward(part_of(batches[0], 0, 3).inputs).at(0);
  return result;
}

Result run_parts(const Task& task) {
  Result all;
  std::mutex mutex;
  const std::vector<Batch> batches = batches_of(task);
  comm::run_ranks(task.parts * task.copies, [&](comm::Communicator& comm) {
    at::set_num_threads(1);
    std::unique_lock lock(mutex);  // seeds are the process's
    Model model = random_graph(task);
    lock.unlock();
    GraphParts parts = make_parts(model, task.part_of, task.parts);
    PipelineStage stage(owned_tensors(model, parts), layout_of_parts(task.parts, task.copies), comm);
    auto optimizer = optim::make(optimizer_of(task), stage.versions.newest());
    optim::GradScaler scaler({.enabled = false});
    PartsOptions options;
    options.clip_norm = task.clip_norm;
    options.runner.recompute = task.recompute;
    PartsStrategy strategy(model, parts, stage, *optimizer, scaler, options);
    Result own;
    {
      torch::NoGradGuard no_grad;  // an evaluation before the first step, and another one after the last
      strategy.forward(part_of(batches[0], 0, 4).inputs);
    }
    train(task, batches, strategy, stage.place.copy, task.copies, own);
    torch::NoGradGuard no_grad;
    Tensors outputs = strategy.forward(part_of(batches[0], 0, 3).inputs);
    EXPECT_EQ(outputs.empty(), stage.place.stage != parts.last_part());
    std::vector<StatePiece> state = strategy.state();
    lock.lock();
    if (!outputs.empty()) all.evaluated = outputs[0];
    note_state(all, state);
    if (stage.place.copy == 0) {
      for (const CutEdge& one : strategy.runner().sent()) all.sent += one.bytes;
      for (const CutEdge& one : strategy.runner().sent_back()) all.sent_back += one.bytes;
    }
    if (comm.rank() == 0) {
      all.losses = own.losses;
      all.norms = own.norms;
      all.updated = own.updated;
      all.not_finite = own.not_finite;
    }
  });
  return all;
}

void expect_equal(const Task& task) {
  Result ours = run_parts(task), alone = run_alone(task);
  ASSERT_EQ(ours.losses.size(), alone.losses.size());
  for (size_t i = 0; i < ours.losses.size(); ++i) {
    EXPECT_NEAR(ours.losses[i], alone.losses[i], 1e-10);
    EXPECT_NEAR(ours.norms[i], alone.norms[i], 1e-10);
  }
  ASSERT_EQ(ours.state.size(), alone.state.size());
  for (const auto& [name, tensor] : alone.state)
    EXPECT_LE((tensor - ours.state.at(name)).abs().max().item<double>(), 1e-10) << name;
  EXPECT_LE((ours.evaluated - alone.evaluated).abs().max().item<double>(), 1e-10);
}

// Any assignment that leaves no part empty.
std::vector<int> random_parts(int nodes, int parts, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int> part_of;
  for (int i = 0; i < nodes; ++i)
    part_of.push_back(i < parts ? i : static_cast<int>(random() % static_cast<unsigned>(parts)));
  std::shuffle(part_of.begin(), part_of.end(), random);
  return part_of;
}

Task random_task(unsigned seed, int parts, int copies = 1) {
  Task task;
  task.seed = seed;
  task.parts = parts;
  task.copies = copies;
  task.part_of = random_parts(task.nodes + 1, parts, seed);
  return task;
}

TEST(Parts, EqualOneDeviceWhateverTheGraphAndTheAssignment) {
  for (unsigned seed = 1; seed <= 6; ++seed)
    for (int parts : {2, 3, 4}) expect_equal(random_task(seed, parts));
}

TEST(Parts, ReplicasAverageTheirGradients) {
  for (unsigned seed : {1U, 2U}) expect_equal(random_task(seed, 2, /*copies=*/2));
  expect_equal(random_task(3, 3, /*copies=*/2));
}

TEST(Parts, ClipByOneNormAccumulateAndRecompute) {
  Task task = random_task(4, 3);
  task.clip_norm = 0.05;
  expect_equal(task);
  task = random_task(5, 2, /*copies=*/2);
  task.accumulate = 3;
  expect_equal(task);
  task = random_task(6, 3);
  task.recompute = true;
  expect_equal(task);
}

TEST(Parts, AWeightThatTwoPartsUseGetsBothGradients) {
  for (unsigned seed : {1U, 2U, 3U}) {
    Task task = random_task(seed, 3);
    task.tied = true;
    task.part_of[0] = 0;
    task.part_of[static_cast<size_t>(task.nodes) - 1] = 2;
    task.part_of[2] = 1;
    expect_equal(task);
  }
}

TEST(Parts, AStepThatIsNotFiniteIsSkippedByAllAndNamed) {
  Task task = random_task(2, 3);
  task.nan_step = 0;
  Result result = run_parts(task);
  EXPECT_EQ(result.updated, (std::vector<bool>{false, true, true}));
  EXPECT_THAT(result.not_finite, testing::AnyOf(HasSubstr("weight"), HasSubstr("bias")));
}

TEST(Parts, SendTheBytesThatThePartitionCuts) {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    Task task = random_task(seed, 3);
    GraphParts parts = make_parts(random_graph(task), task.part_of, task.parts);
    plan::Profile profile;
    for (size_t i = 0; i < parts.graph.nodes.size(); ++i) {
      const bool head = i + 1 == parts.graph.nodes.size();
      const int64_t elements = task.samples * (head ? kClasses : kWidth);
      profile.layers.push_back({parts.graph.nodes[i].name, 1, 1, static_cast<double>(elements * 8), 1});
    }
    for (auto [from, to] : parts.graph.edges()) profile.edges.push_back({from, to});
    const double expected = plan::cut_bytes(plan::graph_of(profile), task.part_of);
    Result result = run_parts(task);
    EXPECT_EQ(static_cast<double>(result.sent), expected);
    EXPECT_EQ(static_cast<double>(result.sent_back), expected);
  }
}

TEST(Parts, AChainIsAGraphToo) {
  Model model = models::wrap(
      torch::nn::Sequential(torch::nn::Linear(2, 4), torch::nn::Tanh(), torch::nn::Linear(4, 2)));
  GraphParts parts = make_parts(model, {0, 1, 0}, 2);
  EXPECT_EQ(parts.readers_of(0), std::vector<int>{1});
  EXPECT_EQ(parts.reads_of(1), std::vector<int>{0});
  EXPECT_TRUE(parts.reads_batch(0));
  EXPECT_FALSE(parts.reads_batch(1));
  EXPECT_EQ(parts.last_part(), 0);
}

TEST(Parts, RefuseAnAssignmentThatDoesNotFit) {
  Task task = random_task(1, 2);
  Model model = random_graph(task);
  EXPECT_THROW(make_parts(model, {0, 1}, 2), ConfigError);
  EXPECT_THROW(make_parts(model, std::vector<int>(10, 0), 2), ConfigError);
  std::vector<int> beyond = task.part_of;
  beyond[0] = 5;
  EXPECT_THROW(make_parts(model, beyond, 2), ConfigError);
}

TEST(Parts, ALostPeerIsAnErrorThatNamesTheEdge) {
  Task task = random_task(1, 2);
  std::mutex mutex;
  std::string said;
  const Batch batch = batches_of(task)[0];
  auto one_rank_stops = [&](comm::Communicator& comm) {
    std::unique_lock lock(mutex);
    Model model = random_graph(task);
    lock.unlock();
    GraphParts parts = make_parts(model, task.part_of, task.parts);
    PipelineStage stage(owned_tensors(model, parts), layout_of_parts(2, 1), comm);
    auto optimizer = optim::make(optimizer_of(task), stage.versions.newest());
    optim::GradScaler scaler({.enabled = false});
    PartsStrategy strategy(model, parts, stage, *optimizer, scaler, {});
    strategy.acquire();
    strategy.compute(batch.inputs, batch.target, {});
    if (comm.rank() == 1) throw ConfigError("rank 1 has enough");
    try {
      strategy.acquire();
      strategy.compute(batch.inputs, batch.target, {});
    } catch (const CommError& error) {
      std::lock_guard guard(mutex);
      said = error.what();
      throw;
    }
  };
  EXPECT_ANY_THROW(comm::run_ranks(2, one_rank_stops, /*timeout=*/5));
  EXPECT_THAT(said, testing::AnyOf(HasSubstr("of 'n"), HasSubstr("rank 1 has enough")));
}

}  // namespace
}  // namespace yoke::parallel::parts_test
