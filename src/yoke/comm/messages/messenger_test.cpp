#include "yoke/comm/messenger.h"

#include "yoke/comm/messages/test_messengers.h"

namespace yoke::comm {
namespace {

using namespace test;

class MessengersAtWork : public Messengers {};
INSTANTIATE_TEST_SUITE_P(Over, MessengersAtWork, ::testing::Values("tcp", "shm"),
                         [](const auto& instance) { return instance.param; });

TEST_P(MessengersAtWork, TasksRunOnceTheirTimeHasCome) {
  run(2, [&](Messenger& messenger) {
    std::vector<int> order;  // of the messenger's thread
    std::promise<double> last;
    const Deadline clock = Deadline::after(20);
    messenger.run_later(0.1, [&] { order.push_back(2), last.set_value(clock.elapsed()); });
    messenger.run_later(0.02, [&] { order.push_back(1); });
    EXPECT_GE(last.get_future().get(), 0.1);
    EXPECT_EQ(order, (std::vector<int>{1, 2}));
  });
}

TEST_P(MessengersAtWork, EchoPayloadsOfAnySize) {
  Latch done(3);
  run(3, [&](Messenger& messenger) {
    std::vector<std::vector<std::byte>> kept;
    messenger.serve({}, [&](int, const Message& request, const Messenger::Answer& answer) {
      auto copy = std::make_shared<std::vector<std::byte>>(request.payload.begin(), request.payload.end());
      Reply reply{message(kEcho, *copy), [copy] {}};
      reply.message.set_head(request.get_head<Range>());
      answer(reply);
    });
    for (size_t bytes : {0ul, 1ul, 4096ul, 4097ul, 100'000ul, 3'000'001ul}) {
      for (int peer = 0; peer < messenger.size(); ++peer) {
        if (peer == messenger.rank()) continue;
        std::vector<std::byte> out = pattern(bytes, messenger.rank()), in(bytes);
        Message request = message(kEcho, out);
        request.set_head(Range{static_cast<int64_t>(bytes), peer});
        Message reply = messenger.ask(peer, request, in, Deadline::after(20)).get();
        EXPECT_EQ(in, out);
        EXPECT_EQ(reply.payload.size(), bytes);
        EXPECT_EQ(reply.get_head<Range>().begin, static_cast<int64_t>(bytes));
        EXPECT_THROW(reply.get_head<int32_t>(), CommError);
      }
    }
    done.arrive_and_wait();
  });
}

TEST_P(MessengersAtWork, PayloadsArriveInTheChosenPlace) {
  Latch done(2);
  std::atomic<int> sent{0};
  run(2, [&](Messenger& messenger) {
    std::vector<std::byte> table(1 << 20);
    if (messenger.rank() == 1) {
      messenger.serve(
          [&](int from, const Message& head, size_t bytes) {
            EXPECT_EQ(from, 0);
            Range range = head.get_head<Range>();
            return std::span(table).subspan(static_cast<size_t>(range.begin), bytes);
          },
          [&](int, const Message& request, const Messenger::Answer& answer) {
            EXPECT_EQ(request.payload.data(), table.data() + request.get_head<Range>().begin);
            answer({{}, [&] { ++sent; }});
          });
    } else {
      for (int64_t begin : {0, 1000, 500'000}) {
        std::vector<std::byte> out = pattern(300'000, static_cast<int>(begin));
        Message request = message(kSum, out);
        request.set_head(Range{begin, 300'000});
        messenger.ask(1, request, {}, Deadline::after(20)).get();
      }
    }
    done.arrive_and_wait();
    if (messenger.rank() == 1) {
      EXPECT_TRUE(sent_are(sent, 3));
      EXPECT_TRUE(std::ranges::equal(std::span(table).subspan(500'000, 300'000), pattern(300'000, 500'000)));
    }
  });
}

TEST_P(MessengersAtWork, TellsArriveInOrderAndFreeTheirMemory) {
  Latch done(2);
  std::atomic<int64_t> seen{0};
  run(2, [&](Messenger& messenger) {
    constexpr int64_t kCount = 2000;
    if (messenger.rank() == 1) {
      messenger.serve({}, [&](int, const Message& request, const Messenger::Answer&) {
        int64_t value = 0;
        std::memcpy(&value, request.payload.data(), sizeof(value));
        EXPECT_EQ(value, seen.load());
        ++seen;
      });
    } else {
      std::vector<std::byte> payload(5000);
      for (int64_t i = 0; i < kCount; ++i) {
        std::memcpy(payload.data(), &i, sizeof(i));
        messenger.tell(1, message(kNote, payload), Deadline::after(20));
      }
      // An answer to a request behind them means that all have been read.
      EXPECT_THROW(messenger.ask(1, message(kKinds, {}), {}, Deadline::after(20)).get(), ConfigError);
      Deadline limit = Deadline::after(20);
      while (seen.load() < kCount && !limit.passed()) std::this_thread::yield();
    }
    done.arrive_and_wait();
    EXPECT_EQ(seen.load(), kCount);
  });
}

TEST_P(MessengersAtWork, ManyRequestsAreUnderWayAtOnce) {
  Latch done(2);
  run(2, [&](Messenger& messenger) {
    messenger.serve({}, [](int, const Message& request, const Messenger::Answer& answer) {
      Reply reply{message(kSum), {}};
      reply.message.set_head(request.get_head<int64_t>() * 2);
      answer(reply);
    });
    constexpr int64_t kCount = 5000;
    std::atomic<int64_t> good{0}, ended{0};
    for (int64_t i = 0; i < kCount; ++i) {
      Message request = message(kSum);
      request.set_head(i);
      messenger.ask_then(1 - messenger.rank(), request, {}, Deadline::after(20),
                         [&, i](const Message& reply, const std::string& error) {
                           if (error.empty() && reply.get_head<int64_t>() == 2 * i) ++good;
                           ++ended;
                         });
    }
    Deadline limit = Deadline::after(20);
    while (ended.load() < kCount && !limit.passed()) std::this_thread::yield();
    EXPECT_EQ(good.load(), kCount);
    done.arrive_and_wait();
  });
}

}  // namespace
}  // namespace yoke::comm
