#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "yoke/base/error.h"
#include "yoke/comm/run_ranks.h"
#include "yoke/models/test_batch.h"
#include "yoke/parallel/common/one_device.h"
#include "yoke/parallel/placement/stage/stage_state.h"
#include "yoke/parallel/schedule/pipeline/pipeline_strategy.h"
#include "yoke/parallel/schedule/pipeline/replay.h"

namespace yoke::parallel {
namespace {

using models::Model;
using models::ModelOptions;
using models::TestBatch;

const ModelOptions kMlp{.name = "mlp", .sizes = {6, 24, 24, 24, 24, 24, 24, 24, 3}};
const ModelOptions kGpt2{
    .name = "gpt2", .layers = 4, .heads = 2, .width = 8, .vocabulary = 11, .positions = 6};
const ModelOptions kS2vt{.name = "s2vt", .width = 6, .vocabulary = 9, .frames = 3, .features = 5, .words = 4};

struct Task {
  ModelOptions model = kMlp;
  PipelineOptions pipeline;
  int stages = 2;
  int copies = 1;
  int steps = 4;
  int64_t samples = 12;      // of a step, of all copies
  int64_t last_samples = 0;  // of the last step; 0: as many
  int nan_step = -1;         // whose inputs are not finite
  bool skip_non_finite = false;
  double clip_norm = 0;
  bool recompute = false;
  std::string optimizer = "sgd";
};

Model make_model(const ModelOptions& options) {
  torch::manual_seed(3);
  Model model = models::build(options);
  model.module->to(torch::kDouble);
  return model;
}

// Batches of all steps; the same each time.
std::vector<TestBatch> batches_of(const Task& task) {
  Model model = models::lay_out(task.model);
  torch::manual_seed(5);
  std::vector<TestBatch> batches;
  for (int i = 0; i < task.steps; ++i)
    batches.push_back(converted(models::make_test_batch(model.sample, task.samples), torch::kDouble));
  if (task.last_samples > 0)
    for (torch::Tensor* one : {&batches.back().inputs[0], &batches.back().target})
      *one = one->narrow(0, 0, task.last_samples);
  if (task.nan_step >= 0)
    batches[static_cast<size_t>(task.nan_step)].inputs[0].fill_(std::numeric_limits<double>::quiet_NaN());
  return batches;
}

TestBatch part_of(const TestBatch& whole, int64_t part, int64_t parts) {
  TestBatch batch;
  int64_t rows = whole.target.size(0) / parts;
  for (const torch::Tensor& one : whole.inputs) batch.inputs.push_back(one.narrow(0, part * rows, rows));
  batch.target = whole.target.narrow(0, part * rows, rows);
  return batch;
}

// Shapes and nothing else: what stages get that neither begin nor end the model.
TestBatch without_values(TestBatch batch) {
  for (torch::Tensor& one : batch.inputs) one = one.to(torch::kMeta);
  batch.target = batch.target.to(torch::kMeta);
  return batch;
}

optim::OptimizerOptions optimizer_of(const Task& task) {
  optim::OptimizerOptions options;
  options.optimizer = task.optimizer;
  options.lr = 0.1;
  options.clip_norm = task.clip_norm;
  if (task.optimizer == "sgd") options.momentum = 0.9;
  return options;
}

std::vector<compute::Segment> segments_of(const Task& task, size_t blocks) {
  return compute::recompute_segments(task.recompute ? "blocks" : "none",
                                     std::vector<compute::BlockCost>(blocks));
}

struct Result {
  std::vector<double> losses;
  std::map<std::string, torch::Tensor> weights;
  std::map<std::string, torch::Tensor> optimizer;
  std::optional<double> grad_norm;
};

// What one stage gives to a checkpoint. Nothing is given twice.
void add_part(Result& result, const std::vector<StatePiece>& state) {
  for (const StatePiece& piece : state) {
    if (piece.is_list()) {
      torch::Tensor& whole = result.optimizer[piece.name];
      if (!whole.defined()) whole = torch::zeros(piece.shape, piece.values.options());
      whole.index_copy_(0, torch::tensor(piece.places, torch::kInt64), piece.values);
    } else if (piece.holder == 0) {
      auto& into = piece.kind == StatePiece::Kind::kOptimizer ? result.optimizer : result.weights;
      EXPECT_TRUE(into.emplace(piece.name, piece.values.clone()).second) << piece.name;
    }
  }
}

PipelineLayout layout_of(const Task& task, const Model& model) {
  return make_layout(task.pipeline, task.stages, task.copies, std::vector<double>(model.blocks.size(), 1),
                     task.samples / task.copies);
}

// Copies of the weights that the theory allows: n, n-1, …, 1; n with vertical sync; 2 for 2bw.
int most_versions(const Task& task, int stage) {
  if (task.pipeline.schedule == "2bw") return 2;
  if (task.pipeline.schedule != "pipedream") return 1;
  return task.pipeline.vertical_sync ? task.stages : task.stages - stage;
}

Result run_pipeline(const Task& task) {
  Result result;
  std::mutex building;  // seeds are the process's
  std::vector<TestBatch> batches = batches_of(task);
  comm::run_ranks(task.stages * task.copies, [&](comm::Communicator& comm) {
    at::set_num_threads(1);  // tiny operators: teams of threads would only wait for each other
    std::unique_lock lock(building);
    Model model = make_model(task.model);
    lock.unlock();
    PipelineStage stage(model, layout_of(task, model), comm);
    auto optimizer = optim::make(optimizer_of(task), stage.versions.newest());
    optim::GradScaler scaler({.enabled = false});
    PipelineStrategyOptions options;
    options.runner.segments = segments_of(task, model.blocks.size());
    options.clip_norm = task.clip_norm;
    options.skip_non_finite = task.skip_non_finite;
    PipelineStrategy strategy(model, stage, *optimizer, scaler, options);
    std::vector<torch::Tensor> losses;
    std::optional<double> norm;
    for (const TestBatch& whole : batches) {
      TestBatch batch = part_of(whole, stage.place.copy, task.copies);
      if (stage.place.stage > 0 && stage.place.stage + 1 < task.stages) batch = without_values(batch);
      strategy.acquire();
      ComputeResult computed = strategy.compute(batch.inputs, batch.target, {1, true, 0.1});
      EXPECT_LE(stage.versions.alive(), most_versions(task, stage.place.stage));
      losses.push_back(strategy.agree({computed.loss, 0}).loss);
      norm = strategy.commit({0.1, true}).grad_norm;
    }
    strategy.drain();
    strategy.settle();
    std::lock_guard adding(building);
    if (stage.place.copy == 0) add_part(result, strategy.state());
    if (comm.rank() != 0) return;
    for (const torch::Tensor& loss : losses) result.losses.push_back(loss.item<double>());
    result.grad_norm = norm;
  });
  return result;
}

// Gradient accumulation on one device, over the same micro-batches.
Result run_alone(const Task& task) {
  Result result;
  Model model = make_model(task.model);
  std::vector<optim::NamedTensor> parameters;
  for (const auto& item : model.module->named_parameters()) parameters.emplace_back(item.key(), item.value());
  auto optimizer = optim::make(optimizer_of(task), parameters);
  optim::GradScaler scaler({.enabled = false});
  OneDeviceOptions options;
  options.clip_norm = task.clip_norm;
  options.segments = segments_of(task, model.blocks.size());
  OneDevice device(model, *optimizer, scaler, options);
  int64_t parts = layout_of(task, model).request.microbatches * task.copies;
  for (const TestBatch& whole : batches_of(task)) {
    device.acquire();
    double loss = 0;
    int64_t cut = whole.target.size(0) < parts ? 1 : parts;
    for (int64_t i = 0; i < cut; ++i) {
      TestBatch batch = part_of(whole, i, cut);
      double weight = 1.0 / static_cast<double>(cut);
      loss +=
          device.compute(batch.inputs, batch.target, {weight, i + 1 == cut, 0}).loss.item<double>() * weight;
    }
    result.losses.push_back(loss);
    result.grad_norm = device.commit({0.1, true}).grad_norm;
  }
  for (const auto& item : model.module->named_parameters())
    result.weights[item.key()] = item.value().detach();
  for (const auto& item : model.module->named_buffers()) result.weights[item.key()] = item.value();
  for (const auto& [name, tensor] : optimizer->state()) result.optimizer[name] = tensor;
  return result;
}

double largest_difference(const std::map<std::string, torch::Tensor>& a,
                          const std::map<std::string, torch::Tensor>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (const auto& [name, tensor] : a)
    worst = std::max(worst,
                     (tensor.to(torch::kDouble) - b.at(name).to(torch::kDouble)).abs().max().item<double>());
  return worst;
}

void expect_equal(const Task& task) {
  std::string what = fmt::format("{} {} on {} stages, {} copies", task.model.name, task.pipeline.schedule,
                                 task.stages, task.copies);
  Result ours = run_pipeline(task), alone = run_alone(task);
  ASSERT_EQ(ours.losses.size(), alone.losses.size());
  for (size_t i = 0; i < ours.losses.size(); ++i) EXPECT_NEAR(ours.losses[i], alone.losses[i], 1e-10) << what;
  EXPECT_LE(largest_difference(ours.weights, alone.weights), 1e-10) << what;
  EXPECT_LE(largest_difference(ours.optimizer, alone.optimizer), 1e-10) << what;
  ASSERT_TRUE(ours.grad_norm && alone.grad_norm) << what;
  EXPECT_NEAR(*ours.grad_norm, *alone.grad_norm, 1e-10) << what;
}

TEST(Pipeline, EqualsAccumulationOnOneDeviceForEverySchedule) {
  for (const char* schedule : {"naive", "gpipe", "1f1b", "interleaved", "zb-h1"}) {
    for (int stages : {2, 4}) {
      Task task;
      task.pipeline.schedule = schedule;
      task.pipeline.microbatches = 6;
      task.stages = stages;
      expect_equal(task);
    }
  }
}

TEST(Pipeline, DoesNotDeadlockWhateverTheNumberOfMicroBatches) {
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "interleaved"}) {
    for (int64_t micro : {1, 3, 4, 12}) {
      Task task;
      task.steps = 2;
      task.pipeline.schedule = schedule;
      task.pipeline.microbatches = micro;
      task.stages = 4;
      expect_equal(task);
    }
  }
}

TEST(Pipeline, ALastBatchWithFewerSamplesThanMicroBatchesEqualsOneDevice) {
  for (const char* schedule : {"naive", "gpipe", "1f1b", "interleaved", "zb-h1"}) {
    for (int64_t samples : {1, 4, 5}) {
      Task task;
      task.steps = 2;
      task.pipeline.schedule = schedule;
      task.pipeline.microbatches = 6;
      task.last_samples = samples;
      expect_equal(task);
    }
  }
}

TEST(Pipeline, ALastBatchWithFewerSamplesThanMicroBatchesPassesWithoutAFlush) {
  for (const char* schedule : {"pipedream", "2bw"}) {
    Task task;
    task.pipeline.schedule = schedule;
    task.pipeline.microbatches = 6;
    task.last_samples = 1;
    for (double loss : run_pipeline(task).losses) EXPECT_TRUE(std::isfinite(loss)) << schedule;
  }
}

TEST(Pipeline, SkipsWhatIsNotFiniteOnAllStages) {
  for (const char* schedule : {"1f1b", "gpipe", "2bw", "pipedream"}) {
    Task task;
    task.pipeline.schedule = schedule;
    task.pipeline.vertical_sync = schedule == std::string("pipedream");
    task.pipeline.microbatches = 3;
    task.nan_step = 1;
    task.skip_non_finite = true;
    Result result = run_pipeline(task);
    EXPECT_FALSE(std::isfinite(result.losses[1])) << schedule;
    EXPECT_TRUE(std::isfinite(result.losses.back())) << schedule;
    for (const auto& [name, tensor] : result.weights)
      EXPECT_TRUE(tensor.isfinite().all().item<bool>()) << schedule << " " << name;
    for (const auto& [name, tensor] : result.optimizer)
      EXPECT_TRUE(tensor.isfinite().all().item<bool>()) << schedule << " " << name;
  }
  Task task;
  task.pipeline.schedule = "pipedream";
  task.skip_non_finite = true;
  EXPECT_THROW(run_pipeline(task), ConfigError);
}

TEST(Pipeline, SumsGradientsOfTiedWeightsAndSendsSeveralTensors) {
  for (const ModelOptions& model : {kGpt2, kS2vt}) {
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
      Task task;
      task.model = model;
      task.pipeline.schedule = schedule;
      task.pipeline.microbatches = 4;
      task.stages = 3;
      expect_equal(task);
    }
  }
}

TEST(Pipeline, StandsBesideCopiesOfItself) {
  Task task;
  task.model = kGpt2;
  task.copies = 2;
  task.pipeline.microbatches = 3;
  expect_equal(task);
}

TEST(Pipeline, SumsOfAChunkTravelWhileOthersAreAtWork) {
  for (const ModelOptions& model : {kMlp, kGpt2}) {
    Task task;
    task.model = model;
    task.copies = 2;
    task.pipeline.schedule = "interleaved";
    task.pipeline.microbatches = 3;
    task.pipeline.chunks = 3;
    expect_equal(task);
  }
}

TEST(Pipeline, ClipsByTheNormOfAllStages) {
  Task task;
  task.model = kGpt2;
  task.clip_norm = 0.01;
  task.stages = 3;
  task.pipeline.microbatches = 4;
  expect_equal(task);
}

TEST(Pipeline, RecomputesInsideStages) {
  Task task;
  task.model = kGpt2;
  task.recompute = true;
  task.pipeline.microbatches = 4;
  expect_equal(task);
  task.pipeline.schedule = "zb-h1";
  expect_equal(task);
}

TEST(Pipeline, StagesTogetherHaveTheStateOfAdamAsOneDeviceHasIt) {
  Task task;
  task.model = kGpt2;
  task.optimizer = "adamw";
  task.pipeline.microbatches = 4;
  expect_equal(task);
}

Result run_replay(const Task& task, bool stash) {
  Result result;
  Model model = make_model(task.model);
  StaleReplay replay(model, layout_of(task, model), optimizer_of(task), stash);
  for (const TestBatch& batch : batches_of(task))
    result.losses.push_back(replay.step(batch.inputs, batch.target, 0.1));
  for (const auto& [name, tensor] : replay.weights()) result.weights[name] = tensor;
  return result;
}

void expect_staleness(Task task) {
  task.steps = 6;
  std::string what = fmt::format("{} {} on {} stages, {} micro-batches, vertical sync {}", task.model.name,
                                 task.pipeline.schedule, task.stages, task.pipeline.microbatches,
                                 task.pipeline.vertical_sync);
  Result ours = run_pipeline(task), replay = run_replay(task, true), wrong = run_replay(task, false);
  for (size_t i = 0; i < ours.losses.size(); ++i)
    EXPECT_NEAR(ours.losses[i], replay.losses[i], 1e-10) << what << ", step " << i;
  EXPECT_LE(largest_difference(ours.weights, replay.weights), 1e-10) << what;
  EXPECT_GT(largest_difference(ours.weights, wrong.weights), 1e-8)
      << what << ": stashing makes no difference";
}

TEST(Pipeline, HasExactlyTheStalenessOfItsSchedule) {
  for (const ModelOptions& model : {kMlp, kGpt2}) {
    for (int stages : {2, 4}) {
      Task task;
      task.model = model;
      task.stages = stages;
      task.pipeline.schedule = "pipedream";
      for (int64_t micro : {1, 3}) {
        if (model.name == "gpt2" && micro == 3) continue;
        task.pipeline.microbatches = micro;
        task.pipeline.vertical_sync = false;
        expect_staleness(task);
        task.pipeline.vertical_sync = true;
        expect_staleness(task);
      }
      task.pipeline.vertical_sync = false;
      task.pipeline.schedule = "2bw";
      task.pipeline.microbatches = 4;
      expect_staleness(task);
    }
  }
}

TEST(Pipeline, ClipsEachStageByItselfWithoutAFlush) {
  Task task;
  task.model = kGpt2;
  task.stages = 3;
  task.pipeline.schedule = "pipedream";
  task.pipeline.microbatches = 2;
  task.clip_norm = 0.05;
  expect_staleness(task);
}

// 2bw, and pipedream with vertical sync: nobody needs an update before the first stage has its gradient.
std::vector<Task> tasks_with_late_norms() {
  std::vector<Task> tasks(2);
  tasks[0].pipeline.schedule = "2bw";
  tasks[0].pipeline.microbatches = 4;
  tasks[1].pipeline.schedule = "pipedream";
  tasks[1].pipeline.microbatches = 2;
  tasks[1].pipeline.vertical_sync = true;
  for (Task& task : tasks) task.clip_norm = 0.05;
  return tasks;
}

TEST(Pipeline, ClipsByTheNormOfAllStagesWithoutAFlushWhereItComesInTime) {
  for (Task task : tasks_with_late_norms()) {
    for (const ModelOptions& model : {kMlp, kGpt2}) {
      for (int stages : {2, 3, 4}) {
        task.model = model;
        task.stages = stages;
        expect_staleness(task);
      }
    }
  }
}

TEST(Pipeline, AClippedUpdateWithoutAFlushIsAsLongAsAllowed) {
  for (Task task : tasks_with_late_norms()) {
    task.stages = 3;
    task.steps = 1;
    task.pipeline.microbatches = task.pipeline.schedule == "2bw" ? 4 : 1;  // one update
    Model before = make_model(task.model);
    double square = 0;
    Result result = run_pipeline(task);
    for (const auto& item : before.module->named_parameters())
      square += (result.weights.at(item.key()) - item.value().detach()).square().sum().item<double>();
    EXPECT_NEAR(std::sqrt(square), 0.1 * task.clip_norm, 1e-6) << task.pipeline.schedule;
  }
}

// The second stage throws; what it got of the first one's micro-batches is lost.
TEST(Pipeline, AStepThatFailedHalfWayIsNotRepeatedInSilence) {
  Task task;
  std::mutex building;
  TestBatch batch = batches_of(task)[0];
  std::string message;
  auto train = [&](comm::Communicator& comm) {
    at::set_num_threads(1);
    std::unique_lock lock(building);
    Model model = make_model(task.model);
    lock.unlock();
    PipelineStage stage(model, layout_of(task, model), comm);
    auto optimizer = optim::make(optimizer_of(task), stage.versions.newest());
    optim::GradScaler scaler({.enabled = false});
    if (comm.rank() == 1)
      model.loss = [](const models::Tensors&, const torch::Tensor&) -> torch::Tensor {
        throw std::runtime_error("no memory");
      };
    PipelineStrategy strategy(model, stage, *optimizer, scaler, {});
    strategy.acquire();
    if (comm.rank() == 1) {
      EXPECT_THROW(strategy.compute(batch.inputs, batch.target, {}), std::runtime_error);
      try {
        strategy.compute(batch.inputs, batch.target, {});
      } catch (const CommError& error) {
        message = error.what();
      }
      return;
    }
    EXPECT_THROW(strategy.compute(batch.inputs, batch.target, {}), CommError);
  };
  comm::run_ranks(2, train, /*timeout=*/1);
  EXPECT_NE(message.find("stage 1 (rank 1): a step has failed here half-way"), std::string::npos) << message;
}

}  // namespace
}  // namespace yoke::parallel
