// Your own module and loop, on several ranks, with checkpoints:
//   build/yoke run --nproc 2 build/example_ddp_own_loop runs/ddp_own_loop
// or under torchrun --no-python, mpirun, srun: the same binary, no flag. Kill a rank and run it again: it
// resumes from the last checkpoint, also on another number of ranks.
#include <yoke/yoke.h>

#include <cstdio>

struct NetImpl : torch::nn::Module {
  NetImpl() {
    hidden = register_module("hidden", torch::nn::Linear(16, 64));
    output = register_module("output", torch::nn::Linear(64, 4));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return output(torch::dropout(torch::relu(hidden(x)), 0.1, is_training()));
  }
  torch::nn::Linear hidden{nullptr}, output{nullptr};
};
TORCH_MODULE(Net);

// Any torch::data data set: this one has 4096 samples in memory, the same on every rank.
struct Samples : torch::data::datasets::Dataset<Samples> {
  torch::Tensor x = torch::randn({4096, 16});
  torch::Tensor y = x.narrow(1, 0, 4).argmax(1);
  torch::data::Example<> get(size_t i) override {
    return {x[static_cast<int64_t>(i)], y[static_cast<int64_t>(i)]};
  }
  std::optional<size_t> size() const override { return 4096; }
};

int main(int argc, char** argv) try {
  yoke::World world = yoke::join();  // rank and peers from the environment
  torch::manual_seed(1);
  Net net;
  Samples samples;
  torch::manual_seed(2 + static_cast<uint64_t>(world.rank()));  // each rank drops out other units
  yoke::DistributedDataParallel ddp(*net, world.comm());        // broadcasts parameters, averages gradients
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));

  // Every sample once an epoch; each rank reads and trains on its part of each batch.
  yoke::DistributedSampler sampler(*samples.size(), yoke::shard(world), {.seed = 1});
  auto loader = torch::data::make_data_loader(samples.map(torch::data::transforms::Stack<>()), sampler,
                                              64 / static_cast<size_t>(world.size()));
  auto batches = yoke::shard(loader, sampler);

  yoke::Run run(world, {.dir = argc > 1 ? argv[1] : "ddp_own_loop_run", .every_steps = 20});
  run.track("model", net);
  run.track("optimizer", optimizer);
  run.track("data", batches);
  run.resume();
  torch::Tensor loss = torch::zeros({});
  while (batches.epoch() < 2 && !run.stopped()) {
    for (auto& batch : batches) {
      optimizer.zero_grad();
      loss = torch::cross_entropy_loss(net->forward(batch.data), batch.target);
      loss.backward();  // buckets travel while it runs; it returns when every average is in
      optimizer.step();
      run.step();
      if (run.stopped()) break;
    }
  }
  run.finish();
  yoke::comm::all_reduce(world.comm(), loss.detach(), yoke::ReduceOp::kMean, "loss");
  if (world.rank() == 0)
    std::printf("%d ranks over %s: %lld steps, loss %.3f, weights %s\n", world.size(),
                world.comm().backend().c_str(), static_cast<long long>(run.steps()), loss.item<double>(),
                yoke::engine::parameter_hash(*net).c_str());
  return run.exit_code();
} catch (const yoke::Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return static_cast<int>(error.code());
}
