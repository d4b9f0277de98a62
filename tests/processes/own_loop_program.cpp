// A user's loop with everything that yoke::Run tracks: own_loop_program DIR STEPS [sharded] [signal=N]
// [torch] BatchNorm, dropout, a loss scale, an optimizer (Yoke's or torch::optim's) and a loader with a
// position. signal=N: the last rank gets SIGUSR1 in step N. Prints "STEPS WEIGHTS SCALE" on rank 0.
#include <yoke/yoke.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

struct Numbers : torch::data::datasets::Dataset<Numbers> {
  torch::data::Example<> get(size_t i) override {
    auto number = static_cast<float>(i);
    return {torch::tensor({number / 54, 1.0f}), torch::tensor({number / 27})};
  }
  std::optional<size_t> size() const override { return 54; }
};

int main(int argc, char** argv) try {
  bool sharded = false, torch_optimizer = false;
  int64_t signal_at = 0;
  for (int i = 3; i < argc; ++i) {
    std::string word = argv[i];
    if (word == "sharded") sharded = true;
    if (word == "torch") torch_optimizer = true;
    if (word.starts_with("signal=")) signal_at = std::atoll(word.c_str() + 7);
  }
  yoke::World world = yoke::join();
  torch::set_num_threads(1);
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(2, 16), torch::nn::BatchNorm1d(16), torch::nn::Dropout(0.1),
                            torch::nn::Linear(16, 1));
  torch::manual_seed(2 + static_cast<uint64_t>(world.rank()));
  yoke::DistributedDataParallel ddp(*net, world.comm());
  yoke::GradScaler scaler({.init_scale = 256, .growth_interval = 5});
  std::vector<yoke::optim::NamedTensor> parameters;
  for (const auto& item : net->named_parameters()) parameters.emplace_back(item.key(), item.value());
  auto ours = yoke::optim::make({.optimizer = "adamw", .lr = 1e-2}, parameters);
  torch::optim::Adam theirs(net->parameters(), torch::optim::AdamOptions(1e-2));
  auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      Numbers().map(torch::data::transforms::Stack<>()), 12);
  auto batches = yoke::shard(loader, world, 5);

  yoke::Run run(world, {.dir = argv[1], .every_steps = 4, .sharded = sharded});
  run.track("model", net);
  if (torch_optimizer)
    run.track("optimizer", theirs);
  else
    run.track("optimizer", ours);
  run.track("scaler", scaler);
  run.track("data", batches);
  run.resume();
  const int64_t until = std::atoll(argv[2]);
  while (run.steps() < until && !run.stopped()) {
    for (auto& batch : batches) {
      net->zero_grad();
      scaler.scale(torch::mse_loss(net->forward(batch.data), batch.target)).backward();
      if (scaler.unscale(net->parameters())) {
        if (torch_optimizer)
          theirs.step();
        else
          ours->step(1e-2);
      }
      scaler.update();
      if (run.steps() + 1 == signal_at && world.rank() == world.size() - 1) std::raise(SIGUSR1);
      run.step();
      if (run.steps() >= until || run.stopped()) break;
    }
  }
  run.finish();
  if (world.rank() == 0)
    std::printf("%lld %s %g\n", static_cast<long long>(run.steps()),
                yoke::engine::parameter_hash(*net).c_str(), scaler.current_scale());
  return run.exit_code();
} catch (const yoke::Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return static_cast<int>(error.code());
}
