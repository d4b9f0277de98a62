#include "yoke/parallel/sync/sharded/zero_optimizer.h"

#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include "yoke/parallel/common/ddp/ddp_test_net.h"

namespace yoke::parallel::zero_optimizer_testing {
namespace {

using testing::batch_of_step;
using testing::difference;
using testing::flat_parameters;
using testing::loss_of;
using testing::NetImpl;
using testing::Samples;
using testing::slice;

std::unique_ptr<torch::optim::Optimizer> adamw(std::vector<torch::Tensor> parameters) {
  return std::make_unique<torch::optim::AdamW>(std::move(parameters),
                                               torch::optim::AdamWOptions(0.02).weight_decay(0.1));
}

constexpr double kClip = 0.3;

torch::Tensor alone(const NetImpl& start) {
  auto net = std::dynamic_pointer_cast<NetImpl>(start.clone());
  auto optimizer = adamw(net->parameters());
  for (int step = 0; step < 10; ++step) {
    Samples batch = batch_of_step(step);
    optimizer->zero_grad();
    loss_of(net->forward(batch.x), batch.y).backward();
    torch::nn::utils::clip_grad_norm_(net->parameters(), kClip);
    optimizer->step();
  }
  return flat_parameters(*net);
}

torch::Tensor sharded(const NetImpl& start, int ranks, bool share, int micro_batches,
                      const std::string& hook = "none") {
  std::vector<std::shared_ptr<NetImpl>> nets;
  for (int i = 0; i < ranks; ++i) nets.push_back(std::dynamic_pointer_cast<NetImpl>(start.clone()));
  std::vector<torch::Tensor> results(static_cast<size_t>(ranks));
  comm::run_ranks(ranks, [&](comm::Communicator& comm) {
    auto& net = nets[static_cast<size_t>(comm.rank())];
    DdpOptions options;
    options.share_parameters = share;
    options.hook = hook;
    options.bucket_bytes = options.first_bucket_bytes = 600;
    ZeroOptimizer optimizer(*net, comm, adamw, options);
    for (int step = 0; step < 10; ++step) {
      Samples part = slice(batch_of_step(step), comm.rank(), ranks);
      optimizer.zero_grad();
      for (int micro = 0; micro < micro_batches; ++micro) {
        Samples some = slice(part, micro, micro_batches);
        torch::Tensor loss = loss_of(net->forward(some.x), some.y) / micro_batches;
        if (micro + 1 < micro_batches) {
          auto local = optimizer.no_sync();
          loss.backward();
        } else {
          loss.backward();
        }
      }
      optimizer.clip_grad_norm(kClip);
      optimizer.step();
    }
    results[static_cast<size_t>(comm.rank())] = flat_parameters(*net);
  });
  for (const torch::Tensor& one : results) EXPECT_TRUE(one.equal(results[0]));
  return results[0];
}

TEST(ZeroOptimizer, EqualsOneDevice) {
  torch::manual_seed(3);
  NetImpl net;
  torch::Tensor expected = alone(net);
  for (int ranks : {1, 2, 3, 4}) {
    EXPECT_LT(difference(sharded(net, ranks, true, 1), expected), 1e-10) << ranks;
    EXPECT_LT(difference(sharded(net, ranks, false, 1), expected), 1e-10) << ranks;
  }
  EXPECT_LT(difference(sharded(net, 2, true, 3), expected), 1e-10);
}

TEST(ZeroOptimizer, HooksCompressGradients) {
  torch::manual_seed(3);
  NetImpl net;
  const torch::Tensor exact = sharded(net, 3, true, 1);
  const double moved = difference(flat_parameters(net), exact);
  const std::pair<const char*, double> hooks[] = {{"fp16", 0.05},    {"bf16", 0.2}, {"int8", 0.3},
                                                  {"topk:0.5", 1.0}, {"sign", 1.5}, {"powersgd:2", 1.0}};
  for (const auto& [hook, share] : hooks) {
    const double apart = difference(sharded(net, 3, true, 1, hook), exact);
    EXPECT_GT(apart, 0) << hook;
    EXPECT_LT(apart, share * moved) << hook;
  }
}

TEST(ZeroOptimizer, ARankKeepsStateForItsPart) {
  torch::manual_seed(3);
  NetImpl net;
  int64_t whole = 0;
  for (const torch::Tensor& parameter : net.parameters()) whole += parameter.numel();
  std::vector<std::shared_ptr<NetImpl>> nets;
  for (int i = 0; i < 4; ++i) nets.push_back(std::dynamic_pointer_cast<NetImpl>(net.clone()));
  comm::run_ranks(4, [&](comm::Communicator& comm) {
    int64_t own = 0;
    ZeroOptimizer optimizer(*nets[static_cast<size_t>(comm.rank())], comm,
                            [&](std::vector<torch::Tensor> parts) {
                              for (const torch::Tensor& part : parts) own += part.numel();
                              return adamw(parts);
                            });
    EXPECT_LE(own, whole / 4 + 4);
  });
}

}  // namespace
}  // namespace yoke::parallel::zero_optimizer_testing
