// Your own module and loop with parameter servers; the last rank is the server, the others are workers:
//   build/yoke run --nproc 3 build/example_ps_own_loop
// Workers are asynchronous: each pulls the newest weights and pushes gradients at its own pace.
#include <yoke/parallel/membership.h>
#include <yoke/ps/learner.h>
#include <yoke/yoke.h>

#include <cstdio>

int main() {
  try {
    yoke::parallel::Choices choices;
    choices.parallel.sync = "ps";
    choices.ps.servers = 1;
    choices.ps.policy = "async";
    yoke::optim::OptimizerOptions sgd;  // the servers' optimizer
    yoke::parallel::JoinRequest request{choices, sgd, "runs/ps_own_loop"};
    if (yoke::parallel::only_serves(choices)) return yoke::parallel::serve_others(request);

    yoke::parallel::Membership member(request);
    torch::manual_seed(1);
    torch::nn::Sequential net(torch::nn::Linear(16, 64), torch::nn::ReLU(), torch::nn::Linear(64, 4));
    // Weights and gradients as views of two flat vectors, which travel in ranges.
    const int64_t elements = torch::nn::utils::parameters_to_vector(net->parameters()).numel();
    torch::Tensor weights = torch::nn::utils::parameters_to_vector(net->parameters()).detach().clone();
    torch::Tensor gradients = torch::zeros({elements});
    int64_t at = 0;
    for (torch::Tensor& one : net->parameters()) {
      one.mutable_grad() = gradients.narrow(0, at, one.numel()).view(one.sizes());
      one.set_data(weights.narrow(0, at, one.numel()).view(one.sizes()));
      at += one.numel();
    }

    yoke::ps::LearnerOptions options;
    options.workers = member.workers();
    options.tensors = {elements};
    yoke::ps::Learner learner(*member.messenger(), options);
    if (member.first()) learner.assign(0, weights.data_ptr(), /*version=*/0, /*steps=*/0);
    learner.join(/*updates=*/400);

    torch::manual_seed(100 + member.rank());  // samples of its own
    const auto loss_of = [&](const torch::Tensor& samples) {
      return torch::cross_entropy_loss(net->forward(samples), samples.narrow(1, 0, 4).argmax(1));
    };
    while (learner.wait()) {  // for work, until the run has ended
      if (!learner.pull(weights.data_ptr())) continue;
      gradients.zero_();
      torch::Tensor loss = loss_of(torch::randn({64, 16}));
      loss.backward();
      learner.push({.data = gradients.data_ptr(), .loss = loss.item<double>(), .lr = 0.2, .samples = 64});
    }
    // A slow worker's last minibatch may be an early one: measure the weights after the last update.
    learner.pull_at(learner.end().version, weights.data_ptr());
    std::printf("worker %d of %d: loss %.3f\n", member.rank(), member.workers(),
                loss_of(torch::randn({1024, 16})).item<double>());
    learner.goodbye();
    return 0;
  } catch (const yoke::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}
