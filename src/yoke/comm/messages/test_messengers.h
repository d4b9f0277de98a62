// Messengers for tests: ranks that are threads, over each transport.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/comm/messages/core.h"
#include "yoke/comm/messages/messengers.h"
#include "yoke/comm/messenger.h"

namespace yoke::comm::test {

constexpr uint16_t kKinds = 3;
enum Kind : uint16_t { kEcho, kSum, kNote };

struct Range {
  int64_t begin;
  int64_t count;
};

// What ranks that are threads tell each other before they are connected.
struct Board {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> values;
  void put(const std::string& key, const std::string& value) {
    std::lock_guard lock(mutex);
    values[key] = value;
    changed.notify_all();
  }
  std::string get(const std::string& key) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, std::chrono::seconds(20), [&] { return values.count(key) > 0; });
    return values[key];
  }
};

class Messengers : public ::testing::TestWithParam<std::string> {
 protected:
  // `body(messenger)` on `size` ranks at the same time, over the transport under test.
  void run(int size, const std::function<void(Messenger&)>& body) {
    net::JobTicket ticket;
    ticket.job_id = "messengers";
    Board board;
    std::vector<std::unique_ptr<net::Acceptor>> acceptors;
    std::vector<cluster::Member> members;
    for (int rank = 0; rank < size; ++rank) {
      acceptors.push_back(std::make_unique<net::Acceptor>(net::parse_address("127.0.0.1:0"), ticket));
      members.push_back({rank, "host", "", 0, acceptors.back()->address().text()});
    }
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          auto messenger = make(rank, size, ticket, *acceptors[static_cast<size_t>(rank)], members, board);
          body(*messenger);
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << rank << ": " << error.what();
        }
      });
    }
    for (auto& thread : threads) thread.join();
  }

  std::unique_ptr<Messenger> make(int rank, int size, const net::JobTicket& ticket, net::Acceptor& acceptor,
                                  const std::vector<cluster::Member>& members, Board& board) const {
    auto fill = [&](auto& setup) {
      setup.rank = rank;
      setup.size = size;
      setup.kinds = kKinds;
      setup.failure = failure_;
      setup.timeout = 20;
      setup.watch_forsaken = [this, rank](const MessengerSetup::Forsaken& forsake) {
        std::lock_guard lock(forsaking_);
        forsake_[rank] = forsake;
        return std::make_shared<int>();
      };
    };
    if (GetParam() == "tcp") {
      TcpMessengerSetup setup;
      fill(setup);
      setup.members = members;
      setup.acceptor = &acceptor;
      setup.ticket = ticket;
      return make_tcp_messenger(setup);
    }
    ShmMessengerSetup setup;
    fill(setup);
    setup.put = [&](const std::string& key, const std::string& value, Deadline) { board.put(key, value); };
    setup.get = [&](const std::string& key, Deadline) { return board.get(key); };
    return make_shm_messenger(setup);
  }

  std::shared_ptr<cluster::Failure> failure_ = std::make_shared<cluster::Failure>();
  mutable std::mutex forsaking_;
  mutable std::map<int, MessengerSetup::Forsaken> forsake_;  // by rank; while its messenger exists
};
// Lets a rank stay until all others are done with it.
struct Latch {
  std::mutex mutex;
  std::condition_variable changed;
  int left;
  explicit Latch(int count) : left(count) {}
  void arrive_and_wait() {
    std::unique_lock lock(mutex);
    --left;
    changed.notify_all();
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(30), [&] { return left <= 0; }));
  }
};

inline Message message(uint16_t kind, std::span<const std::byte> payload = {}) {
  Message out;
  out.kind = kind;
  out.payload = payload;
  return out;
}

inline std::vector<std::byte> pattern(size_t bytes, int seed) {
  std::vector<std::byte> out(bytes);
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 31 + static_cast<size_t>(seed));
  return out;
}

inline bool all_are(const std::vector<std::byte>& data, int value) {
  return std::all_of(data.begin(), data.end(), [&](std::byte x) { return x == std::byte(value); });
}

// Memory that a handler uses is free once its replies were sent; that the other end has them says less.
inline bool sent_are(const std::atomic<int>& sent, int wanted) {
  Deadline limit = Deadline::after(20);
  while (sent.load() < wanted && !limit.passed()) std::this_thread::yield();
  return sent.load() == wanted;
}

}  // namespace yoke::comm::test
