#include "yoke/ps/chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/ps/succession.h"

namespace yoke::ps {
namespace {

using testing::ElementsAre;

struct Sent {
  int server;
  int64_t number;
  Chain::Task acknowledge;
};

struct Link {
  std::vector<Sent> sent;
  Chain chain;
  explicit Link(int next)
      : chain(
            [this](int server, int64_t number, const Chain::Bytes&, Chain::Task done) {
              sent.push_back({server, number, std::move(done)});
            },
            next) {}
};

TEST(PsChain, AnEntryIsSafeOnceTheNextServerHasAcknowledgedIt) {
  Link link(1);
  std::vector<int> safe;
  EXPECT_EQ(link.chain.append({}), 1);
  EXPECT_EQ(link.chain.append({}), 2);
  link.chain.when_safe(2, [&] { safe.push_back(2); });
  link.chain.when_safe(1, [&] { safe.push_back(1); });
  ASSERT_EQ(link.sent.size(), 2U);
  link.sent[1].acknowledge();
  EXPECT_THAT(safe, ElementsAre()) << "the one before it is open";
  link.sent[0].acknowledge();
  EXPECT_THAT(safe, ElementsAre(1, 2));
  link.chain.when_safe(2, [&] { safe.push_back(3); });
  EXPECT_THAT(safe, ElementsAre(1, 2, 3));
}

TEST(PsChain, WithoutANextServerEverythingIsSafe) {
  Link link(Succession::kNobody);
  bool safe = false;
  link.chain.when_safe(link.chain.append({}), [&] { safe = true; });
  EXPECT_TRUE(safe);
  EXPECT_TRUE(link.sent.empty());
}

TEST(PsChain, OpenEntriesGoToTheNewNextServerInOrder) {
  Link link(1);
  int safe = 0;
  for (int i = 0; i < 3; ++i) link.chain.when_safe(link.chain.append({}), [&] { ++safe; });
  link.sent[0].acknowledge();
  link.chain.set_next(2);
  ASSERT_EQ(link.sent.size(), 5U);
  EXPECT_EQ(link.sent[3].server, 2);
  EXPECT_EQ(link.sent[3].number, 2);
  EXPECT_EQ(link.sent[4].number, 3);
  link.chain.set_next(Succession::kNobody);
  EXPECT_EQ(safe, 3);
  link.sent[3].acknowledge();
  EXPECT_EQ(safe, 3) << "nothing happens twice";
}

TEST(PsChain, ATaskMayAppend) {
  Link link(1);
  int safe = 0;
  link.chain.when_safe(link.chain.append({}),
                       [&] { link.chain.when_safe(link.chain.append({}), [&] { ++safe; }); });
  link.sent[0].acknowledge();
  EXPECT_EQ(safe, 0);
  link.sent[1].acknowledge();
  EXPECT_EQ(safe, 1);
}

TEST(PsChain, AServerThatIsFilledIsSentEntriesButNotWaitedFor) {
  Link link(Succession::kNobody);
  link.chain.append({});
  link.chain.fill(4);
  EXPECT_TRUE(link.chain.passes_on());
  EXPECT_EQ(link.chain.append({}), 2);
  ASSERT_EQ(link.sent.size(), 1U);
  EXPECT_EQ(link.sent[0].server, 4);
  EXPECT_TRUE(link.chain.is_safe(2));
  link.chain.filled();
  EXPECT_EQ(link.chain.next(), 4);
  EXPECT_EQ(link.chain.append({}), 3);
  EXPECT_FALSE(link.chain.is_safe(3));
  link.sent[0].acknowledge();
  EXPECT_FALSE(link.chain.is_safe(3)) << "of an entry before";
  link.sent[1].acknowledge();
  EXPECT_TRUE(link.chain.is_safe(3));
}

TEST(PsChain, EntriesAreKeptUntilItIsKnownWhatTheNextServerHas) {
  Link link(1);
  link.chain.append({});
  link.chain.hold_for(2);
  link.chain.append({});
  EXPECT_EQ(link.sent.size(), 1U);
  EXPECT_EQ(link.chain.unsafe(), 2);
  link.chain.set_next(2);
  ASSERT_EQ(link.sent.size(), 3U);
  EXPECT_EQ(link.sent[1].number, 1);
  EXPECT_EQ(link.sent[2].server, 2);
  link.chain.hold_for(3);
  link.chain.fill(3);
  EXPECT_EQ(link.chain.unsafe(), 0) << "it gets them with the copy";
}

TEST(PsChain, ACopyContinuesTheNumbersOfItsOrigin) {
  Link link(Succession::kNobody);
  link.chain.start_after(17);
  EXPECT_EQ(link.chain.last(), 17);
  EXPECT_EQ(link.chain.append({}), 18);
}

}  // namespace
}  // namespace yoke::ps
