// Workers of parameter servers that join and leave, with a model.
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <map>
#include <mutex>
#include <thread>

#include "yoke/engine/verify_trainee.h"
#include "yoke/parallel/sync/servers/server_ranks.h"
#include "yoke/parallel/takes_batches.h"
#include "yoke/ps/connect.h"

namespace yoke::engine {
namespace {

constexpr int kAtStart = 2;
constexpr int64_t kUpdates = 40;

WorkerOptions options_for(const std::string& policy) {
  WorkerOptions options;
  options.model.name = "mlp";
  options.model.sizes = {8, 16, 3};
  options.optimizer.lr = 0.1;
  options.optimizer.momentum = 0.9;
  options.optimizer.clip_norm = policy == "sync" ? 0.5 : 0;
  options.compute.threads = 1;
  options.type = torch::kFloat64;
  options.batch_size = 4;
  options.parallel.sync = "ps";
  options.ps.policy = policy;
  options.ps.servers = 2;
  options.ps.range_bytes = 256;
  options.ps.timeout = 60;
  options.ps.max_workers = 4;
  options.links.workers = kAtStart;
  return options;
}

models::Tensors batch_of(int64_t number) {
  torch::Generator random = at::detail::createCPUGenerator(static_cast<uint64_t>(number + 1));
  return {torch::randn({4, 8}, random, torch::kFloat64), torch::randint(3, {4}, random, torch::kLong)};
}

std::map<std::string, torch::Tensor> parameters_of(const Worker& worker) {
  std::map<std::string, torch::Tensor> values;
  for (const auto& item : worker.model.module->named_parameters())
    values[item.key()] = item.value().detach().clone();
  return values;
}

// Servers and workers as threads. Worker 2 joins at version 10, worker 1 leaves at version 25.
struct Job {
  explicit Job(const WorkerOptions& with)
      : options(with),
        places(parallel::places_of(options, kAtStart)),
        start(parameters_of(*make_worker(options.alone()))),
        group(std::make_unique<ps::LocalGroup>(places.size(), "shm", places.late())) {
    ps::ServerOptions serving = parallel::server_options(options, options.optimizer, kAtStart);
    serving.scheduler.on_update = [this](const ps::UpdateRecord& record) { records.push_back(record); };
    serving.report = [](const ps::Accounting&, int64_t, int64_t) { return std::string("{}"); };
    for (int server = 0; server < 2; ++server)
      servers.push_back(
          std::make_unique<ps::Server>(group->messenger(places.first_server() + server), serving));
  }
  ~Job() { group.reset(); }  // its threads call the servers

  size_t workers_here() {
    std::promise<size_t> count;
    servers[0]->ask_status([&](const ps::ServerStatus& status) {
      size_t here = 0;
      for (const ps::WorkerStatus& one : status.workers)
        here += one.state == "lost" || one.state == "left" ? 0 : 1;
      count.set_value(here);
    });
    return count.get_future().get();
  }
  void come() {
    group->open_again(kAtStart);
    threads.emplace_back([this] { work(kAtStart); });
    for (const Deadline patience = Deadline::after(60); workers_here() < 3 && !patience.passed();)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(workers_here(), 3U);
  }
  void let_go() {
    std::promise<std::string> refusal;
    servers[0]->ask_worker_to_leave(1, [&](const std::string& why) { refusal.set_value(why); });
    EXPECT_EQ(refusal.get_future().get(), "");
  }

  void work(int number) try {
    WorkerOptions own = options;
    own.links.messenger = &group->messenger(number);
    own.links.rank = number;
    Trainee trainee(own);
    trainee.start_from(start);
    parallel::Strategy& strategy = *trainee.worker->strategy;
    strategy.begin(kUpdates);
    for (int events = 0; !strategy.progress()->over;) {
      strategy.acquire();
      const int64_t version = strategy.progress()->step;
      if (number == 0 && events == 0 && version >= 10 && ++events == 1) come();
      if (number == 0 && events == 1 && version >= 25 && ++events == 2) let_go();
      done = done || events == 2;
      for (const Deadline patience = Deadline::after(60);
           number > 0 && version >= 30 && !done && !patience.passed();)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // under rules without rounds
      const std::optional<int64_t> batch = dynamic_cast<parallel::TakesBatches&>(strategy).next_batch();
      const models::Tensors sample = batch_of(batch.value());
      const torch::Tensor loss = strategy.compute({sample[0]}, sample[1], {1, true, 0.1}).loss;
      strategy.agree({loss, 0});
      strategy.settle();
      strategy.commit({0.1, false});
    }
    strategy.drain();
    if (number == 0) trained = parameters_of(*trainee.worker);
    strategy.finish(0);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "worker " << number << ": " << error.what();
  }

  void run() {
    std::thread other([this] { work(1); });
    work(0);
    other.join();
    for (std::thread& thread : threads) thread.join();
    for (auto& server : servers) server->run();
  }

  // One device, with the batches of each update.
  std::map<std::string, torch::Tensor> again() const {
    Trainee alone(options.alone());
    alone.start_from(start);
    parallel::Strategy& strategy = *alone.worker->strategy;
    for (const ps::UpdateRecord& record : records) {
      strategy.acquire();
      torch::Tensor loss;
      for (size_t i = 0; i < record.batches.size(); ++i) {
        const models::Tensors sample = batch_of(record.batches[i]);
        const double weight = 1.0 / static_cast<double>(record.batches.size());
        loss = strategy.compute({sample[0]}, sample[1], {weight, i + 1 == record.batches.size(), 0.1}).loss;
      }
      strategy.agree({loss, 0});
      strategy.settle();
      strategy.commit({0.1, false});
    }
    return parameters_of(*alone.worker);
  }

  const WorkerOptions options;
  const ps::Places places;
  const std::map<std::string, torch::Tensor> start;
  std::map<std::string, torch::Tensor> trained;
  std::vector<ps::UpdateRecord> records;  // by the thread of the first server
  std::vector<std::unique_ptr<ps::Server>> servers;
  std::unique_ptr<ps::LocalGroup> group;
  std::vector<std::thread> threads;
  std::atomic<bool> done = false;  // all have come and gone
};

TEST(LateWorkers, EqualOneDeviceWithTheSameBatches) {
  for (const bool overlap : {true, false}) {
    WorkerOptions options = options_for("sync");
    options.ps.overlap = overlap;
    Job job(options);
    job.run();
    ASSERT_EQ(job.records.size(), static_cast<size_t>(kUpdates));
    EXPECT_EQ(job.records[5].batches.size(), 2U);
    EXPECT_EQ(job.records[20].batches.size(), 3U);
    EXPECT_EQ(job.records.back().batches.size(), 2U);
    for (const auto& [name, value] : job.again())
      EXPECT_LT((value - job.trained.at(name)).abs().max().item<double>(), 1e-10) << name << ", " << overlap;
  }
}

TEST(LateWorkers, UseEachBatchOnceUnderAsync) {
  Job job(options_for("async"));
  job.run();
  std::vector<int64_t> used;
  for (const ps::UpdateRecord& record : job.records)
    used.insert(used.end(), record.batches.begin(), record.batches.end());
  std::sort(used.begin(), used.end());
  EXPECT_EQ(used.size(), static_cast<size_t>(kUpdates));
  EXPECT_EQ(std::adjacent_find(used.begin(), used.end()), used.end());
  EXPECT_LT(used.back(), kUpdates + 4) << "few are in flight";
}

}  // namespace
}  // namespace yoke::engine
