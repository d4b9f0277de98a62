// yoke::Pipeline in a loop of one's own equals one device.
#include "yoke/parallel/pipeline.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <mutex>

#include "yoke/base/error.h"
#include "yoke/comm/run_ranks.h"
#include "yoke/models/wrap.h"

namespace yoke::parallel {
namespace {

models::Model make_model(const std::vector<torch::Tensor>& weights) {
  models::Model model =
      models::wrap(torch::nn::Sequential(torch::nn::Linear(6, 8), torch::nn::Tanh(), torch::nn::Linear(8, 8),
                                         torch::nn::Tanh(), torch::nn::Linear(8, 3)));
  model.module->to(torch::kFloat64);
  torch::NoGradGuard no_grad;
  auto parameters = model.module->parameters();
  for (size_t i = 0; i < weights.size(); ++i) parameters[i].copy_(weights[i]);
  return model;
}

struct Batches {
  std::vector<torch::Tensor> inputs, targets;
};

std::vector<double> train(int ranks, int copies, const std::string& schedule,
                          const std::vector<torch::Tensor>& weights, const Batches& data) {
  std::vector<double> losses;
  std::mutex mutex;
  comm::run_ranks(ranks, [&](comm::Communicator& comm) {
    OwnPipelineOptions options;
    options.schedule = schedule;
    options.batch_size = data.inputs[0].size(0) / copies;
    options.microbatches = 4;
    options.copies = copies;
    options.optimizer.momentum = 0.9;
    models::Model model = [&] {
      std::lock_guard lock(mutex);  // the generator that modules draw from is the process's
      return make_model(comm.rank() == 0 ? weights : std::vector<torch::Tensor>{});
    }();
    Pipeline pipeline(model, {torch::zeros({1, 6}, torch::kFloat64)}, comm, options);
    const int64_t rows = options.batch_size;
    for (size_t i = 0; i < data.inputs.size(); ++i) {
      double loss = pipeline.step({data.inputs[i].narrow(0, pipeline.copy() * rows, rows)},
                                  data.targets[i].narrow(0, pipeline.copy() * rows, rows), 0.2);
      std::lock_guard lock(mutex);
      if (comm.rank() == comm.size() - 1) losses.push_back(loss);
    }
    models::Tensors outputs = pipeline.forward({data.inputs[0].narrow(0, 0, rows)});
    EXPECT_EQ(outputs.empty(), pipeline.stage() + 1 != pipeline.stages());
    EXPECT_FALSE(pipeline.parameters().empty());
  });
  return losses;
}

TEST(Pipeline, InAnOwnLoopEqualsOneDevice) {
  torch::manual_seed(3);
  std::vector<torch::Tensor> weights;
  for (const torch::Tensor& one : make_model({}).module->parameters())
    weights.push_back(torch::randn_like(one));
  Batches data;
  for (int i = 0; i < 5; ++i) {
    data.inputs.push_back(torch::randn({16, 6}, torch::kFloat64));
    data.targets.push_back(torch::randint(3, {16}, torch::kLong));
  }
  std::vector<double> one = train(1, 1, "1f1b", weights, data);
  ASSERT_EQ(one.size(), 5u);
  EXPECT_LT(one.back(), one.front());
  struct {
    int ranks, copies;
    const char* schedule;
  } cases[] = {{2, 1, "1f1b"}, {3, 1, "gpipe"}, {4, 2, "1f1b"}, {2, 1, "zb-h1"}, {2, 2, "1f1b"}};
  for (auto& layout : cases) {
    std::vector<double> losses = train(layout.ranks, layout.copies, layout.schedule, weights, data);
    ASSERT_EQ(losses.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i)
      EXPECT_NEAR(losses[i], one[i], 1e-12) << layout.ranks << " ranks, " << layout.copies << " copies";
  }
}

TEST(Pipeline, RefusesRanksThatAreNoCopies) {
  comm::run_ranks(3, [](comm::Communicator& comm) {
    OwnPipelineOptions options;
    options.copies = 2;
    EXPECT_THROW(Pipeline({}, {}, comm, options), ConfigError);
  });
}

}  // namespace
}  // namespace yoke::parallel
