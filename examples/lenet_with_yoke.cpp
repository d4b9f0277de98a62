// The training of lenet_from_scratch.cpp with the library: the same weights, batches and loss.
//   build/yoke run --nproc 2 build/example_lenet_with_yoke
#include <yoke/yoke.h>

#include <cstdio>

using namespace torch::nn;

int main() try {
  yoke::World world = yoke::join();
  torch::manual_seed(1);
  const torch::Tensor labels = torch::randint(10, {2048});
  const torch::Tensor images =
      torch::randn({10, 1, 28, 28}).index_select(0, labels) + torch::randn({2048, 1, 28, 28});
  Sequential net(Conv2d(Conv2dOptions(1, 6, 5).padding(2)), ReLU(), AvgPool2d(2), Conv2d(6, 16, 5), ReLU(),
                 AvgPool2d(2), Flatten(), Linear(400, 120), ReLU(), Linear(120, 84), ReLU(), Linear(84, 10));
  torch::manual_seed(2);
  for (torch::Tensor& parameter : net->parameters()) {
    torch::NoGradGuard no_autograd;
    parameter.normal_(0, 0.1);
  }
  yoke::DistributedDataParallel ddp(*net, world.comm());  // averages gradients while backward runs
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.02).momentum(0.9));
  for (int64_t step = 0; step < 64; ++step) {
    const int64_t each = 64 / world.size(), first = step * 64 % 2048 + each * world.rank();
    optimizer.zero_grad();
    torch::Tensor loss =
        torch::cross_entropy_loss(net->forward(images.narrow(0, first, each)), labels.narrow(0, first, each));
    loss.backward();
    optimizer.step();
    if (step % 16 < 15) continue;
    loss = loss.detach();
    yoke::comm::all_reduce(world.comm(), loss, yoke::ReduceOp::kMean, "loss");
    if (world.rank() == 0)
      std::printf("%d ranks: loss %.3f after %ld steps\n", world.size(), loss.item<double>(), long(step + 1));
  }
} catch (const yoke::Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return static_cast<int>(error.code());
}
