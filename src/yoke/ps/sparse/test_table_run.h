// For tests: tables under a scheduler, with a dense range beside them, as threads of this process.
#pragma once

#include <algorithm>
#include <chrono>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "yoke/ps/learner.h"
#include "yoke/ps/sparse/test_tables.h"

namespace yoke::ps::sparse {

inline constexpr Key kSpace = kMostKeys;

struct TableRun {
  plan::PolicyOptions policy{plan::Rule::kSync, 2, 0, 0};
  int servers = 2;
  int64_t updates = 10;
  std::string rule = "sgd";
  std::string backend = "shm";
  std::function<std::shared_ptr<const Rule>(int table)> make{};  // instead of `rule`
  int replicas = 0;
  int places = 0;                      // of servers, if some join later
  std::function<int()> join_server{};  // as in test_class.h
  std::vector<std::string> news{};     // what servers have said; guarded by news_mutex()
  std::vector<Server::Numbers> numbers{};
  std::set<int> closed{};  // servers

  // Call it from one thread. The others lose this server.
  void close_server(LocalGroup& group, int server) {
    closed.insert(server);
    group.close(policy.workers + server);
  }
  // `body(learner, client, worker, group)` on a thread for each worker.
  void run(const std::function<void(Learner&, Client&, int, LocalGroup&)>& body) {
    const int workers = policy.workers;
    std::vector<std::unique_ptr<Server>> shops;
    const Places all{workers, servers, workers, std::max(servers, places)};
    LocalGroup group(all.size(), backend, all.late());
    auto open_shop = [&](int s) {
      ServerOptions options;
      options.workers = workers;
      options.servers = std::max(servers, places);
      options.at_start = places > 0 ? servers : 0;
      options.scheduler.say = [this](const std::string& text) {
        std::lock_guard lock(news_mutex());
        news.push_back(text);
      };
      options.replicas = replicas;
      options.make_updater = make_optimizer({});
      options.make_rule = make ? make : [this](int) { return make_rule({.name = rule}); };
      options.scheduler.policy = policy;
      options.scheduler.updates = updates;
      return std::make_unique<Server>(group.messenger(workers + s), std::move(options));
    };
    for (int s = 0; s < servers; ++s) shops.push_back(open_shop(s));
    join_server = [&] {
      const auto s = static_cast<int>(shops.size());
      group.open_again(workers + s);
      shops.push_back(open_shop(s));
      return s;
    };
    std::vector<std::thread> threads;
    for (int w = 0; w < workers; ++w)
      threads.emplace_back([&, w] {
        try {
          LearnerOptions dense;
          dense.workers = workers;
          dense.servers = std::max(servers, places);
          dense.at_start = places > 0 ? servers : 0;
          dense.replicas = replicas;
          dense.tensors = {3};
          dense.type = DataType::kFloat64;
          dense.timeout = 30;
          dense.one_version = policy.rule == plan::Rule::kSync || plan::traits_of(policy.rule).cancels;
          Learner learner(group.messenger(w), dense);
          ClientOptions options;
          options.workers = workers;
          options.servers = dense.servers;
          options.replicas = replicas;
          options.view = learner.servers();
          options.tables = {{.width = 2, .keys = kSpace, .type = DataType::kFloat64}};
          options.message_bytes = 200;  // several messages a gradient
          options.timeout = 30;
          options.says_goodbye = false;
          options.late = [&learner] { learner.check_late(); };
          Client client(group.messenger(w), options);
          if (w == 0) {
            const std::vector<double> zeros(3, 0);
            learner.assign(0, zeros.data(), 0, 0);
            client.assign(0, 0, {}, {}, 0);
          }
          learner.join();
          body(learner, client, w, group);
        } catch (const std::exception& error) {
          ADD_FAILURE() << "worker " << w << ": " << error.what();
        }
      });
    for (auto& thread : threads) thread.join();
    for (size_t s = 0; s < shops.size(); ++s)
      if (!closed.contains(static_cast<int>(s))) shops[s]->run();
    for (auto& shop : shops) numbers.push_back(shop->numbers());
  }

  static std::mutex& news_mutex() {
    static std::mutex mutex;
    return mutex;
  }
  // Waits until servers have said this so many times. False: not within 20 s.
  bool heard(const std::string& text, int64_t times) {
    for (const Deadline patience = Deadline::after(20); !patience.passed();) {
      {
        std::lock_guard lock(news_mutex());
        const auto said = std::count_if(news.begin(), news.end(), [&](const std::string& line) {
          return line.find(text) != std::string::npos;
        });
        if (said >= times) return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
};

// Keys and gradient of a worker's minibatch, the same in every run.
struct Minibatch {
  Minibatch(int worker, int64_t number) {
    std::mt19937 random(static_cast<unsigned>(worker * 1000 + number));
    for (Key key = 0; key < 40; ++key) {
      if (random() % 3 != 0) continue;
      keys.push_back(key * (kSpace / 40));
      for (int i = 0; i < 2; ++i) gradient.push_back(static_cast<double>(random() % 1000) / 500 - 1);
    }
  }
  std::vector<Key> keys;
  std::vector<double> gradient;
};

inline void push(Learner& learner, Client& client, const Minibatch& batch, bool measure = false) {
  const std::vector<double> dense(3, 1);
  Gradient gradient{.data = dense.data(), .loss = 1, .lr = 0.1, .measure = measure};
  gradient.also = [&](double scale, bool wants) {
    const Client::Part part{0, batch.keys, bytes_of(batch.gradient)};
    client.push_gradient(learner.work().minibatch, scale, wants, std::span(&part, 1));
  };
  learner.push(gradient);
}

}  // namespace yoke::ps::sparse
