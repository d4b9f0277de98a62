// Your module, your loop: Yoke adds what LibTorch's C++ API lacks. Kill it at any point and run it again: it
// resumes from the last checkpoint and ends with the same weights, bit for bit.
//   build/example_own_loop runs/own_loop
#include <yoke/yoke.h>

#include <cstdio>

struct NetImpl : torch::nn::Module {
  torch::nn::Linear in{register_module("in", torch::nn::Linear(64, 128))};
  torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(128))};
  torch::nn::Linear hidden{register_module("hidden", torch::nn::Linear(128, 128))};
  torch::nn::Linear out{register_module("out", torch::nn::Linear(128, 10))};

  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor first = norm(in(x)).relu();
    // The activations inside are not kept; backward computes them again.
    torch::Tensor second = yoke::recompute([&](const torch::Tensor& v) { return hidden(v).relu(); }, first);
    return out(torch::dropout(second, 0.1, is_training()));
  }
};
TORCH_MODULE(Net);

int main(int argc, char** argv) try {
  yoke::World world = yoke::join();  // one rank here; examples/ddp_own_loop.cpp has several
  torch::manual_seed(1);
  Net net;
  std::vector<yoke::optim::NamedTensor> parameters;
  for (const auto& item : net->named_parameters()) parameters.emplace_back(item.key(), item.value());
  auto optimizer = yoke::optim::make({.optimizer = "adamw", .lr = 1e-3, .weight_decay = 0.01}, parameters);

  yoke::Run run(world, {.dir = argc > 1 ? argv[1] : "own_loop_run", .every_steps = 20});
  run.track("model", net);
  run.track("optimizer", optimizer);
  run.resume();
  while (run.steps() < 100 && !run.stopped()) {
    auto x = torch::randn({32, 64});
    auto target = x.narrow(1, 0, 10).argmax(1);
    optimizer->zero_grad();
    torch::Tensor loss;
    {
      yoke::AutocastGuard autocast(torch::kCPU, yoke::Precision::kBf16);
      loss = torch::cross_entropy_loss(net->forward(x), target);
    }
    loss.backward();
    yoke::optim::clip_grad_norm(net->parameters(), 1.0);
    optimizer->step(1e-3);
    run.step();
    if (run.steps() % 50 == 0)
      std::printf("step %lld  loss %.3f\n", static_cast<long long>(run.steps()), loss.item<double>());
  }
  run.finish();
  std::printf("weights %s\n", yoke::engine::parameter_hash(*net).c_str());
  return run.exit_code();
} catch (const yoke::Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return static_cast<int>(error.code());
}
