// For tests: servers, scheduler and workers together, as threads over shared memory or tcp.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "yoke/ps/connect.h"
#include "yoke/ps/learner.h"
#include "yoke/ps/server.h"

namespace yoke::ps {

struct Class {
  plan::PolicyOptions policy;
  int servers = 2;
  int64_t updates = 20;
  std::vector<int64_t> tensors = {100, 3, 5000};
  int64_t range_bytes = 4096;
  UpdaterOptions optimizer{};
  std::string stale_step = "full";
  int64_t warm_start = 0;
  double clip_norm = 0;
  std::string backend = "shm";
  double timeout = 20;
  int replicas = 0;
  ScaleHead scale{};  // of losses
  Packing packing{};
  // Filled by run():
  Accounting counts{};
  int64_t version = 0;
  std::vector<Server::Numbers> numbers{};
  std::vector<std::string> news{};
  std::set<int> closed{};  // servers
  // A server that ask_to_leave() asks; its messenger ends when it has left. -1: none.
  int leaves = -1;
  std::function<std::string()> ask_to_leave{};

  // Call it from one thread. The others lose this server.
  void close_server(LocalGroup& group, int server) {
    closed.insert(server);
    group.close(policy.workers + server);
  }
  // `body(learner, worker, group)` on a thread for each worker; the first sets the start to ones.
  void run(const std::function<void(Learner&, int, LocalGroup&)>& body) {
    int workers = policy.workers;
    std::vector<std::unique_ptr<Server>> shops;
    LocalGroup group(workers + servers, backend);
    for (int s = 0; s < servers; ++s) {
      ServerOptions options;
      options.workers = workers;
      options.servers = servers;
      options.replicas = replicas;
      options.make_updater = make_optimizer(optimizer);
      options.scheduler.policy = policy;
      options.scheduler.updates = updates;
      options.scheduler.stale_step = stale_step;
      options.scheduler.warm_start = warm_start;
      options.scheduler.clip_norm = clip_norm;
      options.scheduler.say = [this](const std::string& text) {
        std::lock_guard lock(news_mutex());
        news.push_back(text);
      };
      options.report = [this](const Accounting& all, int64_t at, int64_t) {
        counts = all;
        version = at;
        return std::string("counted");
      };
      shops.push_back(std::make_unique<Server>(group.messenger(workers + s), std::move(options)));
    }
    std::vector<std::thread> threads;
    if (leaves >= 0) {
      Server& leaver = *shops[static_cast<size_t>(leaves)];
      closed.insert(leaves);
      ask_to_leave = [&leaver] {
        std::promise<std::string> refusal;
        leaver.ask_to_leave([&](const std::string& why) { refusal.set_value(why); });
        return refusal.get_future().get();
      };
      threads.emplace_back([this, &leaver, &group] {
        leaver.run();
        group.close(policy.workers + leaves);
      });
    }
    for (int w = 0; w < workers; ++w)
      threads.emplace_back([&, w] {
        try {
          Learner learner(group.messenger(w), learner_options());
          if (w == 0) {
            std::vector<double> ones(static_cast<size_t>(learner.elements()), 1);
            learner.assign(0, ones.data(), 0, 0);
          }
          learner.join(0, w == 0 ? scale : ScaleHead{});
          body(learner, w, group);
        } catch (const std::exception& error) {
          ADD_FAILURE() << "worker " << w << ": " << error.what();
        }
      });
    for (auto& thread : threads) thread.join();
    for (size_t s = 0; s < shops.size(); ++s)
      if (!closed.contains(static_cast<int>(s))) shops[s]->run();
    for (auto& shop : shops) numbers.push_back(shop->numbers());
  }

  // Servers have threads of their own.
  static std::mutex& news_mutex() {
    static std::mutex mutex;
    return mutex;
  }

  LearnerOptions learner_options() const {
    LearnerOptions options;
    options.workers = policy.workers;
    options.servers = servers;
    options.replicas = replicas;
    options.tensors = tensors;
    options.type = DataType::kFloat64;
    options.range_bytes = range_bytes;
    options.timeout = timeout;
    options.packing = packing;
    options.one_version = policy.rule == plan::Rule::kSync || plan::traits_of(policy.rule).cancels;
    options.measure_distance = stale_step == "distance";
    return options;
  }
};

// The gradient of a worker in these tests: its parameters times a number of its own.
inline void step(Learner& learner, std::vector<double>& parameters, double factor, double lr = 0.1) {
  std::vector<double> gradient(parameters);
  for (double& one : gradient) one *= factor;
  learner.push({gradient.data(), parameters[0], lr, 0});
}

}  // namespace yoke::ps
