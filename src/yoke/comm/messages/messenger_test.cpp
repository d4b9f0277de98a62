#include "yoke/comm/messenger.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/comm/messages/core.h"
#include "yoke/comm/messages/messengers.h"

namespace yoke::comm {
namespace {

using ::testing::HasSubstr;

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
};
INSTANTIATE_TEST_SUITE_P(Over, Messengers, ::testing::Values("tcp", "shm"),
                         [](const auto& instance) { return instance.param; });

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

Message message(uint16_t kind, std::span<const std::byte> payload = {}) {
  Message out;
  out.kind = kind;
  out.payload = payload;
  return out;
}

std::vector<std::byte> pattern(size_t bytes, int seed) {
  std::vector<std::byte> out(bytes);
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 31 + static_cast<size_t>(seed));
  return out;
}

bool all_are(const std::vector<std::byte>& data, int value) {
  return std::all_of(data.begin(), data.end(), [&](std::byte x) { return x == std::byte(value); });
}

// Memory that a handler uses is free once its replies were sent; that the other end has them says less.
bool sent_are(const std::atomic<int>& sent, int wanted) {
  Deadline limit = Deadline::after(20);
  while (sent.load() < wanted && !limit.passed()) std::this_thread::yield();
  return sent.load() == wanted;
}

TEST_P(Messengers, EchoPayloadsOfAnySize) {
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

TEST_P(Messengers, PayloadsArriveInTheChosenPlace) {
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

TEST_P(Messengers, TellsArriveInOrderAndFreeTheirMemory) {
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

TEST_P(Messengers, AReplyThatDoesNotFitIsAnErrorAndHurtsNothing) {
  Latch done(2);
  std::atomic<int> sent{0};
  run(2, [&](Messenger& messenger) {
    std::vector<std::byte> large(100'000, std::byte{3});
    if (messenger.rank() == 1) {
      messenger.serve({}, [&](int, const Message&, const Messenger::Answer& answer) {
        answer({message(kEcho, large), [&] { ++sent; }});
      });
    } else {
      std::vector<std::byte> small(99'999), enough(100'000);
      auto too_small = messenger.ask(1, message(kEcho), small, Deadline::after(20));
      try {
        too_small.get();
        ADD_FAILURE() << "not seen";
      } catch (const CommError& error) {
        EXPECT_THAT(error.what(), HasSubstr("has 100000 bytes, there is room for 99999"));
      }
      EXPECT_TRUE(all_are(small, 0));
      messenger.ask(1, message(kEcho), enough, Deadline::after(20)).get();
      EXPECT_TRUE(all_are(enough, 3));
    }
    done.arrive_and_wait();
    EXPECT_TRUE(sent_are(sent, 2));
  });
}

TEST_P(Messengers, KindsAndPeersOutsideOfTheSetAreRefused) {
  run(2, [&](Messenger& messenger) {
    EXPECT_THROW(messenger.tell(1 - messenger.rank(), message(kKinds), Deadline::after(1)), ConfigError);
    EXPECT_THROW(messenger.tell(messenger.rank(), message(kEcho), Deadline::after(1)), ConfigError);
    EXPECT_THROW(messenger.tell(2, message(kEcho), Deadline::after(1)), ConfigError);
    EXPECT_THROW(messenger.tell(-1, message(kEcho), Deadline::after(1)), ConfigError);
  });
}

TEST_P(Messengers, AHandlerThatFailsAnswersWithItsReason) {
  Latch done(2);
  run(2, [&](Messenger& messenger) {
    if (messenger.rank() == 1) {
      messenger.serve({},
                      [](int, const Message&, const Messenger::Answer&) { throw CommError("no such key"); });
    } else {
      try {
        messenger.ask(1, message(kEcho), {}, Deadline::after(20)).get();
        ADD_FAILURE() << "not seen";
      } catch (const CommError& error) {
        EXPECT_THAT(error.what(), HasSubstr("the handler of rank 1 failed: no such key"));
      }
    }
    done.arrive_and_wait();
  });
}

TEST_P(Messengers, ADeadlineEndsAnAskAndALateReplyIsDropped) {
  Latch done(2);
  std::atomic<int> sent{0};
  run(2, [&](Messenger& messenger) {
    std::vector<Messenger::Answer> kept;
    std::vector<std::byte> large(50'000, std::byte{9});
    if (messenger.rank() == 1) {
      messenger.serve({}, [&](int, const Message& request, const Messenger::Answer& answer) {
        if (request.kind == kSum) {
          kept.push_back(answer);
          return;
        }
        for (auto& old : kept) old({message(kSum, large), [&] { ++sent; }});
        answer({{}, [&] { ++sent; }});
      });
    } else {
      std::vector<std::byte> into(50'000);
      try {
        messenger.ask(1, message(kSum), into, Deadline::after(0.05)).get();
        ADD_FAILURE() << "not seen";
      } catch (const CommError& error) {
        EXPECT_THAT(error.what(), HasSubstr("no reply from rank 1 within 0.05 s"));
      }
      messenger.ask(1, message(kEcho), {}, Deadline::after(20)).get();
      EXPECT_TRUE(all_are(into, 0));
    }
    done.arrive_and_wait();
    EXPECT_TRUE(sent_are(sent, 2));
  });
}

TEST_P(Messengers, ASlowReaderMakesItsSendersWait) {
  Latch done(2);
  std::atomic<bool> open{false};
  run(2, [&](Messenger& messenger) {
    if (messenger.rank() == 1) {
      messenger.serve({}, [&](int, const Message&, const Messenger::Answer&) {
        Deadline limit = Deadline::after(20);
        while (!open && !limit.passed()) std::this_thread::yield();
      });
    } else {
      std::vector<std::byte> payload(1 << 20);
      int told = 0;
      try {
        for (; told < 1000; ++told) messenger.tell(1, message(kNote, payload), Deadline::after(0.3));
      } catch (const CommError& error) {
        EXPECT_THAT(error.what(), HasSubstr("telling rank 1: not taken"));
      }
      EXPECT_LT(told, 100) << "a sender ran ahead of its reader";
      open = true;
    }
    done.arrive_and_wait();
  });
}

TEST_P(Messengers, AskersOfAPeerThatWasGivenUpHearOfItOnTheMessengersThread) {
  Latch done(2);
  std::atomic<bool> open{false};
  std::promise<std::thread::id> lost_on;
  run(2, [&](Messenger& messenger) {
    if (messenger.rank() == 1) {
      messenger.serve({}, [&](int, const Message&, const Messenger::Answer&) {
        Deadline limit = Deadline::after(20);
        while (!open && !limit.passed()) std::this_thread::yield();
      });
    } else {
      messenger.on_peer_lost([&](int, const std::string&) { lost_on.set_value(std::this_thread::get_id()); });
      std::vector<std::byte> into(1000), payload(1 << 20);
      auto asked = messenger.ask(1, message(kEcho), into, Deadline::after(60));
      auto tell_many = [&] {
        for (int i = 0; i < 1000; ++i) messenger.tell(1, message(kNote, payload), Deadline::after(0.3));
      };
      EXPECT_THROW(tell_many(), CommError);
      EXPECT_THAT([&] { asked.get(); }, ::testing::ThrowsMessage<CommError>(HasSubstr("does not read")));
      auto thread = lost_on.get_future();
      EXPECT_EQ(thread.wait_for(std::chrono::seconds(20)), std::future_status::ready);
      EXPECT_NE(thread.get(), std::this_thread::get_id());
      open = true;
    }
    done.arrive_and_wait();
  });
}

TEST_P(Messengers, ManyRequestsAreUnderWayAtOnce) {
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

TEST_P(Messengers, ALostPeerIsToldToWhoeverAsksAndToTheCallback) {
  run(2, [&](Messenger& messenger) {
    if (messenger.rank() == 1) return;  // leaves at once
    std::atomic<int> lost{-1};
    messenger.on_peer_lost([&](int peer, const std::string& why) {
      EXPECT_FALSE(why.empty());
      lost = peer;
    });
    EXPECT_THROW(messenger.ask(1, message(kEcho), {}, Deadline::after(20)).get(), CommError);
    Deadline limit = Deadline::after(10);
    while (lost.load() < 0 && !limit.passed()) std::this_thread::yield();
    EXPECT_EQ(lost.load(), 1);
    EXPECT_THROW(messenger.tell(1, message(kEcho), Deadline::after(20)), CommError);
  });
}

TEST_P(Messengers, TheJobsFailureEndsEveryAsk) {
  Latch done(2);
  run(2, [&](Messenger& messenger) {
    if (messenger.rank() == 1) {
      messenger.serve({}, [](int, const Message&, const Messenger::Answer&) {});
    } else {
      auto asked = messenger.ask(1, message(kEcho), {}, Deadline::after(60));
      cluster::FailureReport report;
      report.what = "rank 7 was killed";
      failure_->raise(report);
      try {
        asked.get();
        ADD_FAILURE() << "not seen";
      } catch (const CommError& error) {
        EXPECT_THAT(error.what(), HasSubstr("rank 7 was killed"));
      }
    }
    done.arrive_and_wait();
  });
}

// Shared memory alone says nothing when a process dies.
TEST(ShmMessenger, AKilledProcessIsNoticed) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  auto make = [&](int rank) {
    ShmMessengerSetup setup;
    setup.rank = rank;
    setup.size = 2;
    setup.failure = std::make_shared<cluster::Failure>();
    setup.put = [&](const std::string&, const std::string& value, Deadline) {
      char text[256] = {};
      value.copy(text, 255);
      ASSERT_EQ(write(pipes[1], text, sizeof(text)), 256);
    };
    setup.get = [&](const std::string&, Deadline) {
      char text[256] = {};
      EXPECT_EQ(read(pipes[0], text, sizeof(text)), 256);
      return std::string(text);
    };
    return make_shm_messenger(setup);
  };
  pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    auto messenger = make(1);
    messenger->serve({}, [](int, const Message&, const Messenger::Answer&) { raise(SIGKILL); });
    pause();
    _exit(0);
  }
  {
    auto messenger = make(0);
    EXPECT_THROW(messenger->ask(1, Message{}, {}, Deadline::after(30)).get(), CommError);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  close(pipes[0]);
  close(pipes[1]);
}

}  // namespace
}  // namespace yoke::comm
