// For tests: servers, scheduler and workers together, as threads over shared memory or tcp.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
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
#include "yoke/ps/status.h"
#include "yoke/ps/test_messenger.h"

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
  int places = 0;  // of servers, if some join later; 0: the set is fixed
  // Workers that may join later; batches are handed out then.
  int late_workers = 0;
  int min_workers = 1;
  // Cuts the link between two servers, for both: one of them ends.
  bool cuttable = false;
  std::function<void(int, int)> cut{};
  // Called with the error of a server. Empty: it fails the test.
  std::function<void(const std::string&)> failed{};
  ScaleHead scale{};  // of losses
  Packing packing{};
  // Filled by run():
  Accounting counts{};
  int64_t version = 0;
  std::vector<Server::Numbers> numbers{};
  std::vector<std::string> news{};
  std::vector<UpdateRecord> records{};
  std::set<int> closed{};  // servers
  // A server that ask_to_leave() asks; its messenger ends when it has left. -1: none.
  int leaves = -1;
  std::function<std::string()> ask_to_leave{};

  // Another server joins. Call it from one thread, while servers run. Returns its number.
  std::function<int()> join_server{};

  // Likewise for a worker, on a thread of its own with the same body.
  std::function<int()> join_worker{};
  // The refusal; empty: it leaves.
  std::function<std::string(int worker)> let_go{};

  Places all_places() const {
    return {policy.workers, servers, policy.workers + late_workers, std::max(servers, places)};
  }
  int peer_of_server(int server) const { return all_places().first_server() + server; }

  // Call it from one thread. The others lose this server.
  void close_server(LocalGroup& group, int server) {
    closed.insert(server);
    group.close(peer_of_server(server));
  }
  // `body(learner, worker, group)` on a thread for each worker; the first sets the start to ones.
  void run(const std::function<void(Learner&, int, LocalGroup&)>& body) {
    int workers = policy.workers;
    std::vector<std::unique_ptr<CuttableMessenger>> links;
    std::vector<std::unique_ptr<Server>> shops;
    LocalGroup group(all_places().size(), backend, all_places().late());
    auto open_shop = [&](int s) {
      ServerOptions options;
      options.workers = workers + late_workers;
      options.workers_at_start = late_workers > 0 ? workers : 0;
      options.servers = std::max(servers, places);
      options.at_start = places > 0 ? servers : 0;
      options.replicas = replicas;
      options.make_updater = make_optimizer(optimizer);
      options.scheduler.policy = policy;
      options.scheduler.hands_out = options.scheduler.policy.keeps_rounds = late_workers > 0;
      options.scheduler.min_workers = min_workers;
      options.scheduler.on_update = [this](const UpdateRecord& record) {
        std::lock_guard lock(news_mutex());
        records.push_back(record);
      };
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
      comm::Messenger& own = group.messenger(peer_of_server(s));
      if (!cuttable) return std::make_unique<Server>(own, std::move(options));
      links.push_back(std::make_unique<CuttableMessenger>(own));
      return std::make_unique<Server>(*links.back(), std::move(options));
    };
    cut = [&](int a, int b) {
      links[static_cast<size_t>(a)]->cut(peer_of_server(b));
      links[static_cast<size_t>(b)]->cut(peer_of_server(a));
    };
    for (int s = 0; s < servers; ++s) shops.push_back(open_shop(s));
    join_server = [&] {
      const auto s = static_cast<int>(shops.size());
      group.open_again(peer_of_server(s));
      shops.push_back(open_shop(s));
      return s;
    };
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
        group.close(peer_of_server(leaves));
      });
    }
    auto work = [&](int w) {
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
    };
    std::vector<std::thread> late;
    join_worker = [&] {
      const int w = workers + static_cast<int>(late.size());
      group.open_again(w);
      late.emplace_back(work, w);
      return w;
    };
    let_go = [&](int worker) {
      for (size_t s = 0; s < shops.size(); ++s) {
        if (closed.contains(static_cast<int>(s))) continue;
        std::promise<std::string> answer;
        shops[s]->ask_worker_to_leave(worker, [&](const std::string& why) { answer.set_value(why); });
        const std::string refusal = answer.get_future().get();
        if (!refusal.ends_with(kNotScheduler)) return refusal;
      }
      return std::string("nobody runs the scheduler");
    };
    for (int w = 0; w < workers; ++w) threads.emplace_back(work, w);
    for (auto& thread : threads) thread.join();
    for (auto& thread : late) thread.join();
    for (size_t s = 0; s < shops.size(); ++s)
      if (!closed.contains(static_cast<int>(s))) run_shop(*shops[s]);
    for (auto& shop : shops) numbers.push_back(shop->numbers());
  }

  void run_shop(Server& shop) const try { shop.run(); } catch (const CommError& error) {
    if (!failed) throw;
    failed(error.what());
  }

  // Servers have threads of their own.
  static std::mutex& news_mutex() {
    static std::mutex mutex;
    return mutex;
  }

  LearnerOptions learner_options() const {
    LearnerOptions options;
    options.workers = policy.workers + late_workers;
    options.workers_at_start = policy.workers;
    options.servers = std::max(servers, places);
    options.at_start = places > 0 ? servers : 0;
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
