// Your own module and loop, its layers cut over ranks:
//   build/yoke run --nproc 2 build/example_tensor_own_loop
// Every rank sees the whole batch and holds a part of the weights; losses are those of one device.
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
    torch::manual_seed(1);             // the same weights everywhere, before they are cut
    Net net;
    yoke::TensorPlan plan = yoke::parse_tensor_plan(R"(
      hidden = "columns"   # each rank computes some of the 64 features
      output = "rows"      # and their share of the result, which is summed
    )");
    yoke::TensorParallel slices = yoke::parallelize(*net, world.comm(), plan);
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));

    torch::Tensor samples = torch::randn({4096, 16});
    torch::Tensor labels = samples.narrow(1, 0, 4).argmax(1);
    const int64_t batch = 64;
    torch::Tensor loss;
    for (int64_t at = 0; at + batch <= samples.size(0); at += batch) {
      optimizer.zero_grad();
      loss =
          torch::cross_entropy_loss(net->forward(samples.narrow(0, at, batch)), labels.narrow(0, at, batch));
      loss.backward();  // sums of gradients travel while it runs
      optimizer.step();
    }
    torch::Tensor whole = slices.gather("hidden.weight", net->hidden->weight.detach());
    if (world.rank() == 0)
      std::printf("%d ranks over %s hold %d of %d features: loss %.3f\n", world.size(),
                  world.comm().backend().c_str(), static_cast<int>(net->hidden->weight.size(0)),
                  static_cast<int>(whole.size(0)), loss.item<double>());
    return 0;
  } catch (const yoke::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}
