// Workers and servers as threads of this process, beside one device.
#include <algorithm>
#include <barrier>
#include <cmath>
#include <mutex>
#include <numeric>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/data/dataset.h"
#include "yoke/data/sampler.h"
#include "yoke/engine/run_state.h"
#include "yoke/engine/verify.h"
#include "yoke/ps/connect.h"
#include "yoke/ps/server.h"

namespace yoke::engine {
namespace {

class ServedTrainees {
 public:
  ServedTrainees(const VerifyOptions& options, const Layout& layout)
      : options_(options),
        layout_(layout),
        workers_(static_cast<int>(layout.data)),
        losses_(static_cast<size_t>(workers_)),
        together_(workers_),
        group_(workers_ + static_cast<int>(layout.servers)) {
    policy_.rule = plan::parse_rule(layout.policy);
    policy_.workers = workers_;
    policy_.k = layout.k;
    plan::validate(policy_);
    for (int server = 0; server < layout.servers; ++server) {
      ps::ServerOptions served;
      served.workers = workers_;
      served.servers = static_cast<int>(layout.servers);
      served.make_updater = ps::make_optimizer(parallel::updater_options(options.worker.optimizer));
      served.scheduler.policy = policy_;
      served.scheduler.clip_norm = options.worker.optimizer.clip_norm;
      servers_.push_back(
          std::make_unique<ps::Server>(group_.messenger(workers_ + server), std::move(served)));
    }
  }

  Verification run() {
    WorkerOptions alone = options_.worker;
    alone.type = options_.type;
    reference_ = make_worker(alone);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < workers_; ++rank)
      threads.emplace_back([this, rank, alone] {
        try {
          train(rank, alone);
        } catch (const std::exception&) {
          std::lock_guard lock(mutex_);
          if (!error_) error_ = std::current_exception();
          together_.arrive_and_drop();
        }
      });
    for (std::thread& thread : threads) thread.join();
    if (error_) std::rethrow_exception(error_);
    for (auto& server : servers_) server->run();
    return result_;
  }

 private:
  static double compute(Worker& worker, const data::Dataset& dataset, std::span<const int64_t> indices,
                        int64_t micro_batches) {
    worker.strategy->acquire();
    size_t each = indices.size() / static_cast<size_t>(micro_batches);
    double sum = 0, weight = 1.0 / static_cast<double>(micro_batches);
    for (int64_t i = 0; i < micro_batches; ++i) {
      data::Batch batch = dataset.gather(indices.subspan(static_cast<size_t>(i) * each, each));
      parallel::MicroBatch micro{weight, i + 1 == micro_batches};
      sum += worker.strategy->compute(batch.inputs, batch.target, micro).loss.item<double>() * weight;
    }
    return sum;
  }

  void train(int rank, WorkerOptions own) {
    parallel::PsSetup setup;
    setup.messenger = &group_.messenger(rank);
    setup.workers = workers_;
    setup.ps.servers = layout_.servers;
    setup.policy = policy_;
    own.ps = setup;
    own.accumulate = layout_.accumulate;
    int64_t batch = options_.worker.batch_size;
    own.batch_size = batch / layout_.data / layout_.accumulate;
    std::unique_ptr<Worker> worker;
    {
      std::lock_guard lock(mutex_);  // seeds and weights are drawn from one generator
      worker = make_worker(own);
      torch::NoGradGuard no_grad;
      auto to = named_tensors(*worker->model.module), from = named_tensors(*reference_->model.module);
      for (size_t i = 0; i < to.size(); ++i) to[i].second.copy_(from[i].second);
    }
    together_.arrive_and_wait();  // nobody moves the reference while others copy it
    auto seed = static_cast<uint64_t>(options_.worker.seed);
    auto dataset = data::open(options_.data, data::Split::kTrain, worker->model.sample, seed);
    data::DataOptions cut = options_.data;
    cut.batch_size = batch;
    data::Sampler sampler(dataset->size(), cut, seed);
    for (int64_t step = 0; step < options_.steps; ++step) {
      std::vector<int64_t> all = sampler.indices(step);
      size_t part = all.size() / static_cast<size_t>(workers_);
      std::span<const int64_t> mine =
          std::span<const int64_t>(all).subspan(part * static_cast<size_t>(rank), part);
      losses_[static_cast<size_t>(rank)] = compute(*worker, *dataset, mine, layout_.accumulate);
      together_.arrive_and_wait();
      if (rank == 0) step_reference(*dataset, all);
      worker->strategy->commit({options_.worker.optimizer.lr, false});
      if (rank == 0) compare(*worker);
      together_.arrive_and_wait();
    }
  }

  void step_reference(const data::Dataset& dataset, std::span<const int64_t> all) {
    double loss = std::accumulate(losses_.begin(), losses_.end(), 0.0) / static_cast<double>(workers_);
    double expected = compute(*reference_, dataset, all, 1);
    result_.loss.push_back(loss);
    result_.reference_loss.push_back(expected);
    result_.worst.loss =
        std::max(result_.worst.loss, std::abs(loss - expected) / std::max(1.0, std::abs(expected)));
    reference_->strategy->commit({options_.worker.optimizer.lr, false});
  }

  void compare(const Worker& worker) {
    auto ours = worker.model.module->parameters(), theirs = reference_->model.module->parameters();
    double worst = 0, scale = 1;
    for (size_t i = 0; i < ours.size(); ++i) {
      torch::Tensor expected = theirs[i].detach().to(torch::kFloat64);
      worst = std::max(worst, (ours[i].detach().to(torch::kFloat64) - expected).abs().max().item<double>());
      scale = std::max(scale, expected.abs().max().item<double>());
    }
    result_.worst.parameter = std::max(result_.worst.parameter, worst / scale);
  }

  const VerifyOptions& options_;
  const Layout& layout_;
  int workers_;
  plan::PolicyOptions policy_;
  std::unique_ptr<Worker> reference_;
  std::vector<double> losses_;  // of this step, by worker
  Verification result_;
  std::mutex mutex_;
  std::exception_ptr error_;
  std::barrier<> together_;
  std::vector<std::unique_ptr<ps::Server>> servers_;
  ps::LocalGroup group_;  // goes first: its threads call the servers
};

}  // namespace

Verification verify_with_servers(const VerifyOptions& options, const Layout& layout) {
  int64_t batch = options.worker.batch_size, parts = layout.data * layout.accumulate;
  if (batch % parts != 0)
    throw ConfigError("layout '{}': a batch of {} cannot be cut into {} equal parts. Set data.batch_size.",
                      layout.text, batch, parts);
  return ServedTrainees(options, layout).run();
}

}  // namespace yoke::engine
