// Ranks that end, are started again, and come back to a group that runs.
#include <gmock/gmock.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/comm/messages/messengers.h"

namespace yoke::comm {
namespace {

using ::testing::ElementsAre;

constexpr double kSeconds = 20;

class Returning : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr int kSize = 3;

  Returning() {
    ticket_.job_id = "returning";
    for (int rank = 0; rank < kSize; ++rank) {
      acceptors_.push_back(std::make_unique<net::Acceptor>(net::parse_address("127.0.0.1:0"), ticket_));
      members_.push_back({rank, "host", "", 0, acceptors_.back()->address().text(), "", 0});
    }
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kSize; ++rank)
      threads.emplace_back([this, rank] { ranks_[rank] = make(rank, 0); });
  }

  template <class Setup>
  Setup setup(int rank, int life) {
    Setup setup;
    setup.rank = rank;
    setup.size = kSize;
    setup.failure = failure_;
    setup.timeout = kSeconds;
    setup.may_return = true;
    setup.life = life;
    return setup;
  }

  std::unique_ptr<Messenger> make(int rank, int life) {
    if (GetParam() == "tcp") {
      auto tcp = setup<TcpMessengerSetup>(rank, life);
      tcp.members = members_;
      tcp.acceptor = acceptors_[static_cast<size_t>(rank)].get();
      tcp.ticket = ticket_;
      return make_tcp_messenger(tcp);
    }
    auto shm = setup<ShmMessengerSetup>(rank, life);
    shm.put = [this](const std::string&, const std::string& value, Deadline) {
      std::lock_guard lock(mutex_);
      told_ = value;
      changed_.notify_all();
    };
    shm.get = [this](const std::string&, Deadline) {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::duration<double>(kSeconds), [&] { return !told_.empty(); });
      return told_;
    };
    return make_shm_messenger(shm);
  }

  // Answers with the head it got; notes who comes and goes.
  void serve(int rank) {
    Messenger& own = *ranks_[rank];
    own.on_peer_lost([this](int peer, const std::string&) { note(fmt::format("lost {}", peer)); });
    own.on_peer_back([this](int peer, int life) { note(fmt::format("back {} in life {}", peer, life)); });
    own.serve({}, [this](int, const Message& request, const Messenger::Answer& answer) {
      if (request.head_bytes == 0) {
        std::lock_guard lock(mutex_);
        return held_.push_back(answer);  // answered later
      }
      Reply reply;
      reply.message.set_head(request.get_head<int64_t>());
      answer(reply);
    });
  }

  void note(const std::string& news) {
    std::lock_guard lock(mutex_);
    news_.push_back(news);
    changed_.notify_all();
  }
  std::vector<std::string> news() {
    std::lock_guard lock(mutex_);
    return news_;
  }
  void wait_for_news(size_t count) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, std::chrono::duration<double>(kSeconds),
                                  [&] { return news_.size() >= count; }));
  }
  int64_t ask(int from, int to, int64_t value) {
    Message request;
    request.set_head(value);
    return ranks_[from]->ask(to, request, {}, Deadline::after(kSeconds)).get().get_head<int64_t>();
  }

  net::JobTicket ticket_;
  std::shared_ptr<cluster::Failure> failure_ = std::make_shared<cluster::Failure>();
  std::vector<std::unique_ptr<net::Acceptor>> acceptors_;
  std::vector<cluster::Member> members_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string told_;
  std::vector<std::string> news_;
  std::vector<Messenger::Answer> held_;
  std::unique_ptr<Messenger> ranks_[kSize];
};

TEST_P(Returning, ARankThatIsStartedAgainIsConnectedAgain) {
  serve(0);
  EXPECT_EQ(ask(1, 0, 10), 10);
  EXPECT_EQ(ask(2, 0, 11), 11);
  ranks_[2].reset();
  wait_for_news(1);
  ranks_[2] = make(2, 1);
  EXPECT_EQ(ask(2, 0, 12), 12);
  EXPECT_EQ(ask(1, 0, 13), 13) << "the others did not notice";
  EXPECT_THAT(news(), ElementsAre("lost 2", "back 2 in life 1"));
  ranks_[2].reset();
  ranks_[2] = make(2, 3);  // one life between never came here
  EXPECT_EQ(ask(2, 0, 14), 14);
  wait_for_news(4);
  EXPECT_EQ(news().back(), "back 2 in life 3");
}

TEST_P(Returning, WhatWasHalfSentBeforeIsForgotten) {
  serve(0);
  // Larger than a ring: nobody reads the end of it.
  std::vector<std::byte> large(8 << 20);
  Message request;
  request.set_head(int64_t{1});
  request.payload = large;
  for (int i = 0; i < 3; ++i)
    ranks_[2]->ask_then(0, request, {}, Deadline::after(kSeconds), [](const Message&, const std::string&) {});
  ranks_[2].reset();
  ranks_[2] = make(2, 1);
  for (int64_t i = 0; i < 100; ++i) ASSERT_EQ(ask(2, 0, i), i);
}

TEST_P(Returning, AnAnswerToALifeBeforeIsNotTakenForOneToThis) {
  serve(0);
  Message question;  // has no head: is held
  ranks_[2]->ask_then(0, question, {}, Deadline::after(kSeconds), [](const Message&, const std::string&) {});
  EXPECT_EQ(ask(2, 0, 1), 1) << "it has arrived";
  ranks_[2].reset();
  ranks_[2] = make(2, 1);
  auto own = ranks_[2]->ask(0, question, {}, Deadline::after(kSeconds));
  EXPECT_EQ(ask(2, 0, 2), 2);
  std::vector<Messenger::Answer> held;
  {
    std::lock_guard lock(mutex_);
    held = held_;
  }
  ASSERT_EQ(held.size(), 2u);
  Reply wrong, right;
  wrong.message.set_head(int64_t{7});
  right.message.set_head(int64_t{8});
  held[0](wrong);
  held[1](right);
  EXPECT_EQ(own.get().get_head<int64_t>(), 8);
}

INSTANTIATE_TEST_SUITE_P(Over, Returning, ::testing::Values("shm", "tcp"),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace yoke::comm
