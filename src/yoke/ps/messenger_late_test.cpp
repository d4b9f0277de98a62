// Ranks that were not there when a group was formed, and join it while it runs.
#include <gmock/gmock.h>

#include <future>

#include "yoke/ps/connect.h"

namespace yoke::comm {
namespace {

constexpr double kSeconds = 20;
constexpr int kAtStart = 2, kPlaces = 4;

class Late : public ::testing::TestWithParam<std::string> {
 protected:
  // Answers with its rank.
  void serve(int rank) {
    Messenger& own = group_.messenger(rank);
    own.on_peer_back([this, rank](int peer, int life) {
      std::lock_guard lock(mutex_);
      back_.push_back(fmt::format("{} sees {} in life {}", rank, peer, life));
    });
    own.serve({}, [rank](int, const Message&, const Messenger::Answer& answer) {
      Reply reply;
      reply.message.set_head(int64_t{rank});
      answer(reply);
    });
  }
  // Once the peer is connected.
  int64_t ask(int from, int to) {
    Messenger& own = group_.messenger(from);
    for (const Deadline patience = Deadline::after(kSeconds); own.is_lost(to) && !patience.passed();)
      std::this_thread::yield();
    return own.ask(to, Message{}, {}, Deadline::after(kSeconds)).get().get_head<int64_t>();
  }

  ps::LocalGroup group_{kPlaces, GetParam(), {false, false, true, true}};
  std::mutex mutex_;
  std::vector<std::string> back_;
};

TEST_P(Late, ARankThatHasNotJoinedCountsAsLost) {
  serve(0);
  EXPECT_TRUE(group_.messenger(0).is_lost(2));
  EXPECT_THROW(group_.messenger(0).ask(3, Message{}, {}, Deadline::after(kSeconds)).get(), CommError);
  EXPECT_EQ(group_.messenger(0).size(), kPlaces);
}

TEST_P(Late, RanksJoinAndTalkToAllOthers) {
  for (int rank = 0; rank < kAtStart; ++rank) serve(rank);
  for (int rank = kAtStart; rank < kPlaces; ++rank) {
    group_.open_again(rank);
    serve(rank);
    for (int other = 0; other < rank; ++other) {
      EXPECT_EQ(ask(other, rank), rank);
      EXPECT_EQ(ask(rank, other), other);
    }
  }
  std::lock_guard lock(mutex_);
  EXPECT_THAT(back_, ::testing::IsSupersetOf({"0 sees 2 in life 1", "1 sees 3 in life 1"}));
}

TEST_P(Late, ARankThatWasRestartedMeetsThoseThatJoinedMeanwhile) {
  for (int rank = 0; rank < kAtStart; ++rank) serve(rank);
  group_.open_again(2);
  serve(2);
  EXPECT_EQ(ask(1, 2), 2);
  group_.close(1);
  group_.open_again(1);
  serve(1);
  EXPECT_EQ(ask(1, 2), 2);
  EXPECT_EQ(ask(2, 1), 1);
  group_.open_again(3);
  serve(3);
  EXPECT_EQ(ask(1, 3), 3);
  EXPECT_EQ(ask(3, 1), 1);
}

INSTANTIATE_TEST_SUITE_P(Transports, Late, ::testing::Values("shm", "tcp"),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace yoke::comm
