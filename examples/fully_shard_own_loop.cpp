// Your own module and loop with parameters, gradients and optimizer state sharded over the ranks:
//   build/yoke run --nproc 2 build/example_fully_shard_own_loop
#include <yoke/yoke.h>

#include <cstdio>

struct NetImpl : torch::nn::Module {
  NetImpl() {
    input = register_module("input", torch::nn::Linear(16, 64));
    for (int i = 0; i < 4; ++i) layers->push_back(torch::nn::Linear(64, 64));
    register_module("layers", layers);
    output = register_module("output", torch::nn::Linear(64, 4));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(input(x));
    for (const auto& layer : *layers) x = x + torch::relu(layer->as<torch::nn::Linear>()->forward(x));
    return output(x);
  }
  torch::nn::Linear input{nullptr}, output{nullptr};
  torch::nn::ModuleList layers;
};
TORCH_MODULE(Net);

int main() {
  try {
    yoke::World world = yoke::join();  // rank and peers from the environment
    torch::manual_seed(1);
    Net net;
    auto fully = yoke::fully_shard(*net, world.comm());  // every layer is a unit, gathered when it is used
    torch::optim::AdamW optimizer(fully->parameters(), torch::optim::AdamWOptions(3e-3));  // this rank's part

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
      loss.backward();  // returns when this rank has its part of every average
      fully->clip_grad_norm(1.0);
      optimizer.step();
    }
    yoke::comm::all_reduce(world.comm(), loss.detach(), yoke::ReduceOp::kMean, "loss");
    if (world.rank() == 0)
      std::printf("%d ranks over %s: loss %.3f, %lld bytes of shards each\n", world.size(),
                  world.comm().backend().c_str(), loss.item<double>(),
                  static_cast<long long>(fully->memory().shards));
    return 0;
  } catch (const yoke::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}
