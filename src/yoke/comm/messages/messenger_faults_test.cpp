// Messengers whose peers are wrong, late, slow or gone.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "yoke/comm/messages/test_messengers.h"

namespace yoke::comm {
namespace {

using namespace test;
using ::testing::HasSubstr;

class MessengersInTrouble : public Messengers {};
INSTANTIATE_TEST_SUITE_P(Over, MessengersInTrouble, ::testing::Values("tcp", "shm"),
                         [](const auto& instance) { return instance.param; });

// Takes a message, and no more until it is let go on.
void serve_nothing_until(const std::atomic<bool>& open, Messenger& messenger) {
  messenger.serve({}, [&](int, const Message&, const Messenger::Answer&) {
    Deadline limit = Deadline::after(20);
    while (!open && !limit.passed()) std::this_thread::yield();
  });
}

TEST_P(MessengersInTrouble, AReplyThatDoesNotFitIsAnErrorAndHurtsNothing) {
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
        EXPECT_THAT(error.what(), HasSubstr("has 100000 bytes, but the buffer has 99999"));
      }
      EXPECT_TRUE(all_are(small, 0));
      messenger.ask(1, message(kEcho), enough, Deadline::after(20)).get();
      EXPECT_TRUE(all_are(enough, 3));
    }
    done.arrive_and_wait();
    EXPECT_TRUE(sent_are(sent, 2));
  });
}

TEST_P(MessengersInTrouble, APeerThatIsForsakenCountsAsLostAlthoughItIsConnected) {
  Latch done(2);
  std::atomic<bool> open{false};
  run(2, [&](Messenger& messenger) {
    if (messenger.rank() == 1) return serve_nothing_until(open, messenger), done.arrive_and_wait();
    std::promise<std::string> why;
    messenger.on_peer_lost(
        [&](int peer, const std::string& text) { why.set_value(fmt::format("{}: {}", peer, text)); });
    auto answer = messenger.ask(1, message(kEcho), {}, Deadline::after(20));
    {
      std::lock_guard lock(forsaking_);
      forsake_.at(0)(1, "rank 1 was evicted");
    }
    EXPECT_TRUE(messenger.is_lost(1));
    EXPECT_THAT([&] { answer.get(); }, ::testing::ThrowsMessage<CommError>(HasSubstr("rank 1 was evicted")));
    EXPECT_EQ(why.get_future().get(), "1: rank 1 was evicted");
    open = true;
    done.arrive_and_wait();
  });
}

TEST_P(MessengersInTrouble, KindsAndPeersOutsideOfTheSetAreRefused) {
  run(2, [&](Messenger& messenger) {
    EXPECT_THROW(messenger.tell(1 - messenger.rank(), message(kKinds), Deadline::after(1)), ConfigError);
    EXPECT_THROW(messenger.tell(messenger.rank(), message(kEcho), Deadline::after(1)), ConfigError);
    EXPECT_THROW(messenger.tell(2, message(kEcho), Deadline::after(1)), ConfigError);
    EXPECT_THROW(messenger.tell(-1, message(kEcho), Deadline::after(1)), ConfigError);
  });
}

TEST_P(MessengersInTrouble, AHandlerThatFailsAnswersWithItsReason) {
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

TEST_P(MessengersInTrouble, ADeadlineEndsAnAskAndALateReplyIsDropped) {
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

TEST_P(MessengersInTrouble, ASlowReaderMakesItsSendersWait) {
  Latch done(2);
  std::atomic<bool> open{false};
  run(2, [&](Messenger& messenger) {
    if (messenger.rank() == 1) {
      serve_nothing_until(open, messenger);
    } else {
      std::vector<std::byte> payload(1 << 20);
      int told = 0;
      try {
        for (; told < 1000; ++told) messenger.tell(1, message(kNote, payload), Deadline::after(0.3));
      } catch (const CommError& error) {
        EXPECT_THAT(error.what(), HasSubstr("message to rank 1: not accepted"));
      }
      EXPECT_LT(told, 100) << "a sender ran ahead of its reader";
      open = true;
    }
    done.arrive_and_wait();
  });
}

TEST_P(MessengersInTrouble, AskersOfAPeerThatWasGivenUpHearOfItOnTheMessengersThread) {
  Latch done(2);
  std::atomic<bool> open{false};
  std::promise<std::thread::id> lost_on;
  run(2, [&](Messenger& messenger) {
    if (messenger.rank() == 1) {
      serve_nothing_until(open, messenger);
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

TEST_P(MessengersInTrouble, ALostPeerIsToldToWhoeverAsksAndToTheCallback) {
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

TEST_P(MessengersInTrouble, TheJobsFailureEndsEveryAsk) {
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
