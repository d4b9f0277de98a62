// Minibatches that an update voids in the middle of their backward pass.
#include "yoke/parallel/sync/servers/ps_strategy.h"

#include <gtest/gtest.h>
#include <torch/cuda.h>

#include "yoke/ps/test_messenger.h"

namespace yoke::parallel {
namespace {

constexpr int64_t kCancelled = 10'000;

// A worker whose scheduler, this test, voids its minibatch whenever a gradient leaves the last block.
class Voiding {
 public:
  explicit Voiding(torch::Device device) : device_(device) {
    messenger_.answer_to = [](int, const comm::Message& request, std::span<std::byte> into) {
      if (request.kind == ps::kOpen) return ps::message_with(request.kind, ps::OpenReply{1, 1});
      if (request.kind == ps::kPull) return ps::message_with(request.kind, ps::PullReply{}, into);
      return comm::Message();
    };
    models::ModelOptions options;
    options.name = "mlp";
    options.sizes = {16, 12, 8, 4};
    torch::manual_seed(3);
    model_ = models::build(options);
    model_.module->to(device);
    models::Block& last = model_.blocks.back();
    last.forward = [this, forward = last.forward](const models::Tensors& inputs) {
      models::Tensors outputs = forward(inputs);
      outputs[0].register_hook([this](const torch::Tensor&) {
        if (voided_ < kCancelled) release(++voided_);
      });
      return outputs;
    };
    std::vector<optim::NamedTensor> parameters;
    for (const auto& item : model_.module->named_parameters())
      parameters.emplace_back(item.key(), item.value());
    optimizer_ = optim::make({}, std::move(parameters));
  }

  void release(int64_t minibatch) {
    ps::ReleaseHead head;
    head.minibatch = minibatch;
    ASSERT_EQ(messenger_.deliver(1, ps::message_with(ps::kRelease, head)), "");
  }

  void run() {
    PsSetup setup;
    setup.messenger = &messenger_;
    setup.policy = {plan::Rule::kKSync, 2, 1, 0};
    OneDeviceOptions options;
    options.device = device_;
    options.segments = {{.begin = 0, .end = model_.blocks.size(), .recompute = false}};
    options.place = [this](const torch::Tensor& input) { return input.to(device_); };
    PsStrategy strategy(model_, *optimizer_, scaler_, options, setup);
    release(0);
    strategy.acquire();
    torch::Tensor inputs = torch::randn({2, 16}), target = torch::tensor({1, 3});
    ComputeResult result = strategy.compute({inputs}, target, {});
    EXPECT_EQ(voided_, kCancelled);
    // The engine of autograd is as it was: what counts is the gradient of one pass.
    std::vector<torch::Tensor> gradients;
    for (const StatePiece& one : strategy.gradients()) gradients.push_back(one.values.clone());
    model_.module->zero_grad();
    torch::Tensor loss = model_.loss(model_.forward({inputs.to(device_)}), target.to(device_));
    loss.backward();
    for (size_t i = 0; i < gradients.size(); ++i)
      EXPECT_TRUE(torch::allclose(gradients[i], strategy.gradients()[i].values)) << i;
    EXPECT_NEAR(result.loss.item<double>(), loss.item<double>(), 1e-6);
  }

 private:
  torch::Device device_;
  ps::ScriptedMessenger messenger_{0, 2};
  models::Model model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::GradScaler scaler_{{.enabled = false}};
  int64_t voided_ = 0;
};

TEST(PsStrategy, TenThousandVoidedMinibatchesLeaveAutogradAsItWas) {
  Voiding(torch::kCPU).run();
  if (torch::cuda::is_available()) Voiding(torch::Device(torch::kCUDA, 0)).run();
}

}  // namespace
}  // namespace yoke::parallel
