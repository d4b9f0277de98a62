// For tests: servers of sparse tables and clients, as threads of this process.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "yoke/ps/connect.h"
#include "yoke/ps/server.h"
#include "yoke/ps/sparse/client.h"

namespace yoke::ps::sparse {

struct TableShop {
  int workers = 1;
  int servers = 1;
  ClientOptions client{};
  RuleOptions rule{};
  std::function<std::shared_ptr<const Rule>(int table)> make_rule{};
  std::vector<Server::Numbers> numbers{};

  // `body(messenger, options, worker)` on a thread for each worker.
  void run_messengers(const std::string& backend,
                      const std::function<void(comm::Messenger&, const ClientOptions&, int)>& body) {
    std::vector<std::unique_ptr<Server>> shops;
    LocalGroup group(workers + servers, backend);  // goes first: its threads call the servers
    for (int s = 0; s < servers; ++s) {
      ServerOptions options;
      options.workers = workers;
      options.servers = servers;
      options.make_updater = make_adder();
      options.rule_lr = rule.lr;
      options.make_rule = make_rule;
      if (!make_rule) options.make_rule = [this](int) { return sparse::make_rule(rule); };
      shops.push_back(std::make_unique<Server>(group.messenger(workers + s), std::move(options)));
    }
    ClientOptions options = client;
    options.workers = workers;
    options.servers = servers;
    options.timeout = 60;
    std::vector<std::thread> threads;
    for (int w = 0; w < workers; ++w) {
      threads.emplace_back([&, w] {
        try {
          body(group.messenger(w), options, w);
        } catch (const std::exception& error) {
          ADD_FAILURE() << "worker " << w << ": " << error.what();
        }
      });
    }
    for (auto& thread : threads) thread.join();
    for (auto& shop : shops) shop->run();
    for (auto& shop : shops) numbers.push_back(shop->numbers());
  }

  void run(const std::string& backend, const std::function<void(Client&, int)>& body) {
    run_messengers(backend, [&](comm::Messenger& messenger, const ClientOptions& options, int worker) {
      Client own(messenger, options);
      body(own, worker);
    });
  }
};

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}
template <class T>
std::span<std::byte> memory_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

}  // namespace yoke::ps::sparse
