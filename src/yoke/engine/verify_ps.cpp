#include "yoke/engine/verify_ps.h"

#include <barrier>
#include <numeric>
#include <thread>

#include "yoke/ps/connect.h"

namespace yoke::engine {
namespace {

using Tensors = std::vector<torch::Tensor>;

class ServedTrainees {
 public:
  explicit ServedTrainees(VerifyBench& bench)
      : bench_(bench),
        served_(*bench.options.served),
        workers_(bench.options.ranks),
        losses_(static_cast<size_t>(workers_)),
        gradients_(static_cast<size_t>(workers_)),
        together_(workers_),
        group_(workers_ + served_.server.servers) {
    for (int server = 0; server < served_.server.servers; ++server)
      servers_.push_back(std::make_unique<ps::Server>(group_.messenger(workers_ + server), served_.server));
  }

  void run() {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < workers_; ++rank)
      threads.emplace_back([this, rank] {
        try {
          train(rank);
        } catch (const std::exception&) {
          std::lock_guard lock(mutex_);
          if (!error_) error_ = std::current_exception();
          together_.arrive_and_drop();
        }
      });
    for (std::thread& thread : threads) thread.join();
    if (error_) std::rethrow_exception(error_);
    for (auto& server : servers_) server->run();
  }

 private:
  Trainee make_trainee(int rank) {
    std::lock_guard lock(mutex_);  // seeds and weights are drawn from one generator
    WorkerOptions own = bench_.options.parallel;
    own.ps = served_.setup;
    own.ps->messenger = &group_.messenger(rank);
    return bench_.trainee(rank, own);
  }

  void train(int rank) {
    Trainee trainee = make_trainee(rank);
    parallel::Strategy& strategy = *trainee.worker->strategy;
    const auto own = static_cast<size_t>(rank);
    for (int64_t step = 0; step < bench_.options.steps; ++step) {
      std::vector<int64_t> all = bench_.samples(step);
      size_t part = all.size() / static_cast<size_t>(workers_);
      losses_[own] = own_loss(trainee, std::span<const int64_t>(all).subspan(part * own, part));
      gradients_[own] = copies_of(strategy.gradients());
      together_.arrive_and_wait();
      if (rank == 0) step_reference(step);
      strategy.commit({bench_.lr(), false});
      together_.arrive_and_wait();
      bench_.note({0, 0, relative_difference(trainee.parameters, bench_.reference.parameters)});
      together_.arrive_and_wait();
    }
  }

  // Not agreed on: workers of servers hear of other losses when it suits them.
  double own_loss(Trainee& trainee, std::span<const int64_t> indices) const {
    parallel::Strategy& strategy = *trainee.worker->strategy;
    const int64_t micro_batches = bench_.options.parallel.accumulate;
    strategy.acquire();
    size_t each = indices.size() / static_cast<size_t>(micro_batches);
    double sum = 0, weight = 1.0 / static_cast<double>(micro_batches);
    for (int64_t i = 0; i < micro_batches; ++i) {
      data::Batch batch = bench_.dataset->gather(indices.subspan(static_cast<size_t>(i) * each, each));
      parallel::MicroBatch micro{weight, i + 1 == micro_batches};
      sum += strategy.compute(batch.inputs, batch.target, micro).loss.item<double>() * weight;
    }
    return sum;
  }

  static Tensors copies_of(const Tensors& tensors) {
    Tensors copies;
    for (const torch::Tensor& one : tensors) copies.push_back(one.defined() ? one.detach().clone() : one);
    return copies;
  }

  // Undefined where a worker has none.
  Tensors mean_gradients() const {
    Tensors mean = copies_of(gradients_[0]);
    for (int rank = 1; rank < workers_; ++rank) {
      const Tensors& own = gradients_[static_cast<size_t>(rank)];
      if (own.size() != mean.size()) return {};
      for (size_t i = 0; i < mean.size(); ++i)
        mean[i] = mean[i].defined() && own[i].defined() ? mean[i] + own[i] : torch::Tensor();
    }
    for (torch::Tensor& one : mean)
      if (one.defined()) one = one / workers_;
    return mean;
  }

  void step_reference(int64_t step) {
    double loss = std::accumulate(losses_.begin(), losses_.end(), 0.0) / static_cast<double>(workers_);
    bench_.compute_reference(step, loss, 1);
    bench_.note({relative_difference(loss, bench_.expected_loss),
                 relative_difference(mean_gradients(), bench_.reference.worker->strategy->gradients()), 0});
    bench_.commit_reference();
  }

  VerifyBench& bench_;
  const ServedLayout& served_;
  int workers_;
  std::vector<double> losses_;      // of this step, by worker
  std::vector<Tensors> gradients_;  // likewise
  std::mutex mutex_;
  std::exception_ptr error_;
  std::barrier<> together_;
  std::vector<std::unique_ptr<ps::Server>> servers_;
  ps::LocalGroup group_;  // goes first: its threads call the servers
};

}  // namespace

void verify_with_servers(VerifyBench& bench) {
  ServedTrainees(bench).run();
}

}  // namespace yoke::engine
