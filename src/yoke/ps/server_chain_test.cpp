// Entries of chains that cannot be: refused, nothing applied.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/ps/entries.h"
#include "yoke/ps/server.h"
#include "yoke/ps/test_messenger.h"

namespace yoke::ps {
namespace {

using ::testing::HasSubstr;

// The second of three servers, with copies of the ranges of the first, and one worker.
struct Holder {
  Holder()
      : messenger(2, 4), server(messenger, [] {
          ServerOptions options;
          options.servers = 3;
          options.replicas = 1;
          options.make_updater = make_adder();
          options.scheduler.policy = {plan::Rule::kSync, 1, 0, 0};
          return options;
        }()) {}

  void open() {
    std::vector<int64_t> tensors = {48};
    OpenHead head{48, 64, 2, DataType::kFloat32};
    ASSERT_EQ(messenger.deliver(0, message_with(kOpen, head, std::as_bytes(std::span(tensors)))), "");
  }
  std::string send(EntryHead head, EntryWriter entry, int from = 1) {
    std::vector<std::byte> bytes = entry.take();
    return messenger.deliver(from, message_with(kEntry, head, bytes));
  }
  // The first range belongs to the first server.
  static EntryWriter push(int64_t range = 0, int64_t sequence = 1, size_t values = 16) {
    std::vector<float> ones(values, 1.0F);
    EntryWriter entry(Change::kNow);
    entry.put(NowChange{range, 0, 0, sequence, 1, 1});
    return entry.put_bytes(std::as_bytes(std::span(ones)));
  }

  ScriptedMessenger messenger;
  Server server;
};

TEST(PsServerChain, TakesEachEntryOnceAndInOrder) {
  Holder holder;
  holder.open();
  EXPECT_EQ(holder.send({0, 1}, Holder::push()), "");
  EXPECT_EQ(holder.send({0, 1}, Holder::push()), "") << "sent again";
  EXPECT_THAT(holder.send({0, 3}, Holder::push(0, 3)),
              HasSubstr("change 3 of the ranges of server 0 after 1"));
  EXPECT_THAT(holder.send({0, 0}, Holder::push()), HasSubstr("change 0"));
  EXPECT_EQ(holder.send({0, 2}, Holder::push(0, 2)), "");
}

TEST(PsServerChain, RefusesEntriesOfOthers) {
  Holder holder;
  EXPECT_THAT(holder.send({0, 1}, Holder::push()), HasSubstr("range 0")) << "nothing is opened";
  holder.open();
  EXPECT_THAT(holder.send({0, 1}, Holder::push(), /*from=*/0), HasSubstr("unexpected message"));
  EXPECT_THAT(holder.send({2, 1}, Holder::push(), 3), HasSubstr("holds no copy"));
  EXPECT_THAT(holder.send({1, 1}, Holder::push(1)), HasSubstr("holds no copy")) << "it serves them";
  EXPECT_THAT(holder.send({-1, 1}, Holder::push()), HasSubstr("holds no copy"));
  EXPECT_THAT(holder.send({0, 1}, Holder::push(), 3), HasSubstr("holds no copy"));
  EXPECT_THAT(holder.send({0, 1}, Holder::push(1)), HasSubstr("range 1"));
  EXPECT_EQ(holder.send({0, 1}, Holder::push()), "");
}

TEST(PsServerChain, RefusesEntriesThatDoNotFit) {
  Holder holder;
  holder.open();
  EXPECT_THAT(holder.send({0, 1}, EntryWriter(Change::kNow)), HasSubstr("bytes where"));
  EXPECT_THAT(holder.send({0, 1}, EntryWriter(static_cast<Change>(99))), HasSubstr("unknown change"));
  EXPECT_THAT(holder.send({0, 1}, Holder::push(0, 1, 17)), HasSubstr("refers to elements"));
  EntryWriter apply(Change::kApply);
  apply.put(ApplyChange{.range = 0, .number = 1, .gradient = ApplyChange::kHere}).put(int64_t{1});
  EXPECT_THAT(holder.send({0, 1}, apply), HasSubstr("bytes where"));
  apply.put_list(std::vector<int64_t>{-1});
  EXPECT_THAT(holder.send({0, 1}, apply), HasSubstr("does not fit")) << "no gradient";
  EntryWriter later(Change::kApply);
  later.put(ApplyChange{.range = 0, .number = 7}).put(int64_t{1}).put_list(std::vector<int64_t>{-1});
  EXPECT_THAT(holder.send({0, 1}, later), HasSubstr("update 7"));
  EntryWriter keys(Change::kKeys);
  keys.put(KeysChange{0, 1000, 1, 1});
  EXPECT_THAT(holder.send({0, 1}, keys), HasSubstr("list of 1000"));
  EntryWriter far(Change::kKeys);
  far.put(KeysChange{0, 1, 1, 1}).put(int64_t{500}).put(double{1});
  EXPECT_THAT(holder.send({0, 1}, far), HasSubstr("key 500"));
  EntryWriter marks(Change::kSum);
  marks.put(SumChange{.range = 0, .number = 1, .counted = 1}).put(int64_t{-5});
  EXPECT_THAT(holder.send({0, 1}, marks), HasSubstr("marks of 1 workers, not 0"));
  EXPECT_EQ(holder.send({0, 1}, Holder::push()), "") << "none of them counted";
}

TEST(PsServerChain, ARequestWaitsUntilTheServerBeforeIsKnownToBeLost) {
  Holder holder;
  holder.open();
  EXPECT_EQ(holder.send({0, 1}, Holder::push()), "");
  holder.messenger.answers = 0;
  EXPECT_EQ(holder.messenger.deliver(0, message_with(kPull, PullHead{0, 0, 16, 0})), "");
  EXPECT_EQ(holder.messenger.answers, 0);
  holder.messenger.lose(1);
  EXPECT_EQ(holder.messenger.answers, 1);
  EXPECT_THAT(holder.send({0, 2}, Holder::push(0, 2)), HasSubstr("holds no copy")) << "of a lost server";
}

}  // namespace
}  // namespace yoke::ps
