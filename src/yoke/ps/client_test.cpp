#include "yoke/ps/client.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/ps/connect.h"
#include "yoke/ps/server.h"
#include "yoke/ps/test_messenger.h"

namespace yoke::ps {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Servers on threads, and `body(client)` on one thread for each worker.
struct Shop {
  int workers = 1;
  int servers = 1;
  int64_t keys = 1;
  int64_t width = 1;
  int64_t range_bytes = 256 << 10;
  MakeUpdater updater = make_adder();
  std::vector<Server::Numbers> numbers{};

  void run(const std::string& backend, const std::function<void(Client&, comm::Messenger&, int)>& body) {
    std::vector<std::unique_ptr<Server>> shops;
    LocalGroup group(workers + servers, backend);  // goes first: its threads call the servers
    for (int s = 0; s < servers; ++s)
      shops.push_back(
          std::make_unique<Server>(group.messenger(workers + s), ServerOptions{.workers = workers,
                                                                               .servers = servers,
                                                                               .make_updater = updater,
                                                                               .scheduler = {},
                                                                               .report = {}}));
    std::vector<std::thread> threads;
    for (int w = 0; w < workers; ++w) {
      threads.emplace_back([&, w] {
        try {
          ClientOptions options{workers, servers, keys, width, DataType::kFloat64, range_bytes, 20};
          Client client(group.messenger(w), options);
          body(client, group.messenger(w), w);
        } catch (const std::exception& error) {
          ADD_FAILURE() << "worker " << w << ": " << error.what();
        }
      });
    }
    for (auto& thread : threads) thread.join();
    for (auto& shop : shops) shop->run();
    for (auto& shop : shops) numbers.push_back(shop->numbers());
  }
};

;

class PsClient : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Over, PsClient, ::testing::Values("shm", "tcp"),
                         [](const auto& instance) { return instance.param; });

TEST_P(PsClient, PushesOfOnesAreAllCountedOnce) {
  Shop shop{.workers = 3, .servers = 2, .keys = 1000, .range_bytes = 1000};
  constexpr int kPushes = 50;
  shop.run(GetParam(), [&](Client& client, comm::Messenger&, int) {
    std::vector<double> ones(1000, 1), seen(1000);
    for (int i = 0; i < kPushes; ++i) client.push(0, std::span(ones));
    client.wait(client.push(0, std::span(ones)));
    client.wait(client.pull(0, std::span(seen)));
    EXPECT_THAT(seen,
                Each(::testing::AllOf(::testing::Ge(kPushes + 1.0), ::testing::Le(3.0 * (kPushes + 1)))));
    std::vector<double> zeros(1000, 0);
    // Until the others are done.
    for (int i = 0; i < 10'000 && *std::min_element(seen.begin(), seen.end()) < 3 * (kPushes + 1); ++i)
      client.wait(
          client.push_pull(0, std::as_bytes(std::span(zeros)), std::as_writable_bytes(std::span(seen))));
    EXPECT_THAT(seen, Each(3.0 * (kPushes + 1)));
  });
}

TEST_P(PsClient, ResendsCountOnce) {
  Shop shop{.keys = 4};
  shop.run(GetParam(), [&](Client& client, comm::Messenger& messenger, int) {
    std::vector<double> ones(4, 1), seen(4);
    comm::Message again;
    again.kind = kPush;
    again.set_head(PushHead{0, 0, 4, 77, 0, 1});
    again.payload = std::as_bytes(std::span(ones));
    for (int i = 0; i < 5; ++i) messenger.ask(1, again, {}, Deadline::after(20)).get();
    client.wait(client.pull(0, std::span(seen)));
    EXPECT_THAT(seen, Each(1.0));
  });
  EXPECT_EQ(shop.numbers[0].duplicates, 4);
}

TEST_P(PsClient, ThreadsOfOneClientLoseNothingAndNothingCountsTwice) {
  constexpr int kThreads = 8, kPushes = 500;
  Shop shop{.servers = 2, .keys = 64, .range_bytes = 128};
  int64_t resends = 0;
  shop.run(GetParam(), [&](Client&, comm::Messenger& messenger, int) {
    ResendingMessenger wire(messenger, {kPush, kPushPull, kPushKeys});
    ClientOptions options{1, 2, 64, 1, DataType::kFloat64, 128, 60};
    // The numbers of a client begin at 1: this one takes the place of the first, which has pushed nothing.
    Client client(wire, options);
    const std::vector<double> ones(64, 1);
    std::vector<int64_t> keys(64);
    std::iota(keys.begin(), keys.end(), 0);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::vector<double> seen(64);
        for (int i = 0; i < kPushes; ++i) {
          Client::Timestamp last = 0;
          if ((i + t) % 3 == 0)
            last = client.push_keys(keys, std::as_bytes(std::span(ones)));
          else if ((i + t) % 3 == 1)
            last =
                client.push_pull(0, std::as_bytes(std::span(ones)), std::as_writable_bytes(std::span(seen)));
          else
            last = client.push(0, std::span(ones));
          if (i % 16 == 0 || (i + t) % 3 == 1) client.wait(last);
        }
        client.wait(client.pull(0, std::span(seen)));
      });
    }
    for (auto& thread : threads) thread.join();
    std::vector<double> seen(64);
    client.wait(client.push_pull(0, std::as_bytes(std::span(ones)), std::as_writable_bytes(std::span(seen))));
    client.wait(client.pull(0, std::span(seen)));
    EXPECT_THAT(seen, Each(kThreads * kPushes + 1.0));
    resends = wire.resends;
  });
  EXPECT_GT(resends, 0);
  EXPECT_EQ(shop.numbers[0].duplicates + shop.numbers[1].duplicates, resends);
}

TEST_P(PsClient, ACallbackThatThrowsIsAnErrorOfItsOperationAndOfNothingElse) {
  Shop shop{.keys = 4};
  shop.run(GetParam(), [&](Client& client, comm::Messenger&, int) {
    std::vector<double> ones(4, 1), seen(4);
    auto thrown = client.push(0, std::span(ones), [](const std::string&) { throw 42; });
    EXPECT_THAT([&] { client.wait(thrown); }, ::testing::ThrowsMessage<CommError>(HasSubstr("callback")));
    client.wait(client.pull(0, std::span(seen)));
    EXPECT_THAT(seen, Each(1.0));
  });
}

TEST_P(PsClient, PartsAcrossServersAndKeysFindTheirPlace) {
  Shop shop{.servers = 3, .keys = 100, .width = 2, .range_bytes = 160};
  shop.run(GetParam(), [&](Client& client, comm::Messenger&, int) {
    std::vector<double> part(101);
    for (size_t i = 0; i < part.size(); ++i) part[i] = static_cast<double>(i);
    client.wait(client.push(33, std::span(part)));
    std::vector<int64_t> keys = {99, 17, 50, 0};
    std::vector<double> values = {1, 2, 3, 4, 5, 6, 7, 8}, seen(8);
    client.wait(client.push_keys(keys, std::as_bytes(std::span(values))));
    client.wait(client.pull_keys(keys, std::as_writable_bytes(std::span(seen))));
    EXPECT_THAT(seen, ElementsAre(1, 2, 3 + 1, 4 + 2, 5 + 67, 6 + 68, 7, 8));
  });
}

TEST_P(PsClient, AnyFunctionMayMoveTheValues) {
  Shop shop{.keys = 3};
  shop.updater =
      make_custom([](const UpdateStep& step, DataType, const void* gradient, const void* from, void* to) {
        for (int64_t i = 0; i < step.count; ++i)
          static_cast<double*>(to)[i] =
              std::max(static_cast<const double*>(from)[i], static_cast<const double*>(gradient)[i]);
      });
  shop.run(GetParam(), [&](Client& client, comm::Messenger&, int) {
    std::vector<double> a = {1, 5, 2}, b = {3, 4, 9}, seen(3);
    client.push(0, std::span(a));
    client.wait(client.push_pull(0, std::as_bytes(std::span(b)), std::as_writable_bytes(std::span(seen))));
    EXPECT_THAT(seen, ElementsAre(3, 5, 9));
  });
}

TEST_P(PsClient, WhatCannotBeIsRefusedByNameAndNotApplied) {
  Shop shop{.keys = 4};
  shop.run(GetParam(), [&](Client& client, comm::Messenger& messenger, int) {
    std::vector<double> values(4, 1), seen(4);
    auto refusal = [&](const PushHead& head, size_t count) {
      comm::Message message;
      message.kind = kPush;
      message.set_head(head);
      message.payload = std::as_bytes(std::span(values.data(), count));
      try {
        messenger.ask(1, message, {}, Deadline::after(20)).get();
      } catch (const CommError& error) {
        return std::string(error.what());
      }
      return std::string("taken");
    };
    EXPECT_THAT(refusal({7, 0, 4, 1, 0, 1}, 4), HasSubstr("worker 0 refers to range 7"));
    EXPECT_THAT(refusal({0, 2, 4, 1, 0, 1}, 4), HasSubstr("worker 0 refers to elements 2..6"));
    EXPECT_THAT(refusal({0, 0, 4, 1, 0, 1}, 3), HasSubstr("worker 0 pushed 24 bytes for 4 elements"));
    EXPECT_THAT(refusal({0, 0, 4, 1, 9999, 1}, 4), HasSubstr("worker 0 pushed for update 9999"));
    values[2] = std::numeric_limits<double>::quiet_NaN();
    EXPECT_THAT(refusal({0, 0, 4, 1, 0, 1}, 4), HasSubstr("worker 0 pushed a non-finite value"));
    client.wait(client.pull(0, std::span(seen)));
    EXPECT_THAT(seen, Each(0.0));
    EXPECT_THROW(client.push(2, std::span(values)), ConfigError);
    std::vector<int64_t> keys = {4};
    EXPECT_THROW(client.push_keys(keys, std::as_bytes(std::span(values.data(), 1))), ConfigError);
  });
  EXPECT_EQ(shop.numbers[0].refused, 5);
}

}  // namespace
}  // namespace yoke::ps
