// Your own module and loop with the optimizer's state sharded over the ranks:
//   build/yoke run --nproc 2 build/example_zero_own_loop
#include <yoke/yoke.h>

#include <cstdio>

struct NetImpl : torch::nn::Module {
  NetImpl() {
    hidden = register_module("hidden", torch::nn::Linear(16, 64));
    output = register_module("output", torch::nn::Linear(64, 4));
  }
  torch::Tensor forward(const torch::Tensor& x) { return output(torch::relu(hidden(x))); }
  torch::nn::Linear hidden{nullptr}, output{nullptr};
};
TORCH_MODULE(Net);

int main() {
  try {
    yoke::World world = yoke::join();  // rank and peers from the environment
    torch::manual_seed(1);
    Net net;
    // Broadcasts parameters; AdamW gets this rank's pieces of them, and keeps moments for nothing else.
    yoke::ZeroOptimizer optimizer(*net, world.comm(), [](std::vector<torch::Tensor> own) {
      return std::make_unique<torch::optim::AdamW>(own, torch::optim::AdamWOptions(0.01));
    });

    // Every rank has the same samples here, and trains on its own part of each batch.
    torch::Tensor samples = torch::randn({4096, 16});
    torch::Tensor labels = samples.narrow(1, 0, 4).argmax(1);
    const int64_t batch = 64, part = batch / world.size();
    torch::Tensor loss;
    for (int64_t at = 0; at + batch <= samples.size(0); at += batch) {
      torch::Tensor x = samples.narrow(0, at + world.rank() * part, part);
      torch::Tensor y = labels.narrow(0, at + world.rank() * part, part);
      optimizer.zero_grad();
      loss = torch::cross_entropy_loss(net->forward(x), y);
      loss.backward();   // each rank gets the averages of what it owns
      optimizer.step();  // and everybody the new parameters
    }
    yoke::comm::all_reduce(world.comm(), loss.detach(), yoke::ReduceOp::kMean, "loss");
    if (world.rank() == 0)
      std::printf("%d ranks over %s: loss %.3f\n", world.size(), world.comm().backend().c_str(),
                  loss.item<double>());
    return 0;
  } catch (const yoke::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}
