// Your module, your loop: Yoke adds what LibTorch's C++ API lacks. Run it twice: it resumes where it stopped.
//   build/example_own_loop runs/own_loop
#include <yoke/yoke.h>

#include <cstdio>

struct Net : torch::nn::Module {
  torch::nn::Linear in{register_module("in", torch::nn::Linear(64, 128))};
  torch::nn::Linear hidden{register_module("hidden", torch::nn::Linear(128, 128))};
  torch::nn::Linear out{register_module("out", torch::nn::Linear(128, 10))};

  torch::Tensor forward(const torch::Tensor& x) {
    // The activations inside are not kept; backward computes them again.
    auto middle =
        yoke::recompute([&](const auto& v) { return std::vector{hidden(in(v[0]).relu()).relu()}; }, {x});
    return out(middle[0]);
  }
};

int main(int argc, char** argv) {
  torch::manual_seed(1);
  auto net = std::make_shared<Net>();
  std::vector<yoke::optim::NamedTensor> parameters;
  for (auto& item : net->named_parameters()) parameters.emplace_back(item.key(), item.value());
  auto optimizer = yoke::optim::make({.optimizer = "adamw", .lr = 1e-3, .weight_decay = 0.01}, parameters);
  yoke::checkpoint::Writer writer(argc > 1 ? argv[1] : "own_loop_run", {.every_steps = 20});

  int64_t step = 0;
  if (auto loaded = yoke::checkpoint::load_newest(argc > 1 ? argv[1] : "own_loop_run")) {
    torch::NoGradGuard no_grad;
    yoke::checkpoint::restore_into(loaded->state.model, parameters, "model");
    yoke::checkpoint::restore_into(loaded->state.optimizer, optimizer->state(), "optimizer");
    step = loaded->step;
  }
  for (const int64_t end = step + 100; step < end; ++step) {
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
    if ((step + 1) % 50 == 0)
      std::printf("step %lld  loss %.3f\n", static_cast<long long>(step + 1), loss.item<double>());
  }
  writer.save(step, {parameters, optimizer->state(), {{"step", step}}});
  writer.wait();
}
