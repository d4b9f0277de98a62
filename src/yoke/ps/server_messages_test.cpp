// Messages that cannot be: refused with a text, nothing applied, no memory touched that is not the server's.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "yoke/ps/learner.h"
#include "yoke/ps/server.h"
#include "yoke/ps/test_messenger.h"

namespace yoke::ps {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

// The second of two servers, and one worker, with a model of 64 numbers.
struct Counter {
  explicit Counter(int rank = 2, plan::Rule rule = plan::Rule::kAsync)
      : messenger(rank, 3), server(messenger, [&] {
          ServerOptions options;
          options.servers = 2;
          options.make_updater = make_optimizer({});
          options.scheduler.policy = {rule, 1, 0, 0};
          return options;
        }()) {}

  template <class Head>
  std::string send(uint16_t kind, const Head& head, std::span<const std::byte> payload = {}, int from = 0) {
    return messenger.deliver(from, message_with(kind, head, payload));
  }
  std::string open(OpenHead head, std::vector<int64_t> tensors) {
    return send(kOpen, head, std::as_bytes(std::span(tensors)));
  }
  void open() { ASSERT_EQ(open({64, 64, 2, DataType::kFloat32}, {16, 48}), ""); }

  ScriptedMessenger messenger;
  Server server;
};

TEST(PsMessages, ModelsThatCannotBeAreNotLaidOut) {
  Counter counter;
  auto type = DataType::kFloat32;
  for (const auto& [head, tensors] : std::vector<std::pair<OpenHead, std::vector<int64_t>>>{
           {{0, 64, 1, type}, {}},
           {{64, 64, 0, type}, {64}},
           {{64, 64, 65, type}, {64}},
           {{64, kMost, kMost, type}, {64}},
           {{64, 64, 2, type}, {3, 61}},  // a key would lie in two ranges
           {{64, 7, 2, type}, {64}},
           {{64, -1, 1, type}, {64}},
           {{64, 64, 1, type}, {kMost, kMost, 66}},
           {{64, 64, 1, type}, {128, -64}},
           {{64, 64, 1, type}, {63}},
           {{int64_t{1} << 40, 4, 1, type}, {int64_t{1} << 40}},  // a range for each number
           {{64, 64, 1, DataType::kInt8}, {64}},
           {{64, 64, 1, static_cast<DataType>(200)}, {64}}})
    EXPECT_THAT(counter.open(head, tensors), HasSubstr("invalid")) << head.elements << " " << head.align;
  std::byte odd[9] = {};
  EXPECT_THAT(counter.send(kOpen, OpenHead{1, 64, 1, type}, odd), HasSubstr("not a list"));
  counter.open();
}

TEST(PsMessages, NumbersAtTheEdgeOfWhatCanBeCounted) {
  Counter counter;
  counter.open();
  float values[16] = {};
  auto bytes = std::as_bytes(std::span(values));
  EXPECT_THAT(counter.send(kPush, PushHead{1, kMost, kMost, 1, 0, 1}, bytes),
              HasSubstr("refers to elements"));
  EXPECT_THAT(counter.send(kPull, PullHead{1, -kMost, 3, 0}), HasSubstr("refers to elements"));
  EXPECT_THAT(counter.send(kAssign, AssignHead{1, 0, kMost, 0}, bytes), HasSubstr("version"));
  EXPECT_THAT(counter.send(kAssign, AssignHead{1, 0, 0, -1}, bytes), HasSubstr("steps"));
  EXPECT_THAT(counter.send(kPush, PushHead{1, 16, 16, 1, 0, NAN}, bytes), HasSubstr("times nan"));
  EXPECT_EQ(counter.send(kPush, PushHead{1, 16, 16, 1, 0, 1}, bytes), "");
}

TEST(PsMessages, KeysThatDoNotMatchTheirBytes) {
  Counter counter;
  counter.open();
  // As many keys as make the bytes come out as 0.
  EXPECT_THAT(counter.send(kPullKeys, KeysHead{int64_t{1} << 61, 2, 0}), HasSubstr("keys"));
  EXPECT_THAT(counter.send(kPushKeys, KeysHead{int64_t{1} << 60, 2, 0}), HasSubstr("keys"));
  EXPECT_THAT(counter.send(kPullKeys, KeysHead{0, 2, 0}), HasSubstr("keys"));
  EXPECT_THAT(counter.send(kPullKeys, KeysHead{-1, 2, 0}), HasSubstr("keys"));
  int64_t key = 9;
  auto bytes = std::as_bytes(std::span(&key, 1));
  EXPECT_THAT(counter.send(kPullKeys, KeysHead{1, 1, 0}, bytes), HasSubstr("keys of 1 values"));
  EXPECT_EQ(counter.send(kPullKeys, KeysHead{1, 2, 0}, bytes), "");
  key = 32;
  EXPECT_THAT(counter.send(kPullKeys, KeysHead{1, 2, 0}, bytes), HasSubstr("uses key 32"));
}

TEST(PsMessages, UpdatesComeInOrderAndNameWorkersThatAre) {
  Counter counter;
  counter.open();
  auto update = [&](int64_t number, Contributor from) {
    return counter.send(kUpdate, UpdateHead{number, number, 1, 0.1}, std::as_bytes(std::span(&from, 1)), 1);
  };
  EXPECT_THAT(update(5, {}), HasSubstr("update 5 after 0"));
  EXPECT_THAT(update(1, {-1, 0, 0}), HasSubstr("worker -1"));
  EXPECT_THAT(update(1, {1, 0, 0}), HasSubstr("worker 1"));
  EXPECT_THAT(update(1, {0, 0, -1}), HasSubstr("in life -1"));
  EXPECT_EQ(update(1, {0, 0, 0}), "");
  EXPECT_THAT(update(1, {0, 0, 0}), HasSubstr("update 1 after 1"));
  EXPECT_THAT(update(kMost, {0, 0, 0}), HasSubstr("after 1"));
  std::byte odd[25] = {};
  EXPECT_THAT(counter.send(kUpdate, UpdateHead{2, 2, 1, 0.1}, odd, 1), HasSubstr("not a list"));
  EXPECT_THAT(counter.send(kUpdate, UpdateHead{2, 2, 1, 0.1}, {}, 0), HasSubstr("not the scheduler"));
}

TEST(PsMessages, WhoNeverPullsIsRefusedByName) {
  Counter counter;
  counter.open();
  float values[16] = {};
  auto push = [&](int64_t update) {
    return counter.send(kPush, PushHead{1, 16, 16, update, update, 1, 0}, std::as_bytes(std::span(values)));
  };
  // The server has not heard of any update yet.
  for (int64_t update : {2, 3}) EXPECT_EQ(push(update), "");
  for (int i = 0; i < 3; ++i)
    EXPECT_THAT(push(4), HasSubstr("rank 0 has pushed 2 gradients ahead of update 1 of range 1"));
  Contributor from{};
  EXPECT_EQ(counter.send(kUpdate, UpdateHead{1, 1, 1, 0.1}, std::as_bytes(std::span(&from, 1)), 1), "");
  EXPECT_EQ(push(4), "") << "one of them was taken";
  EXPECT_THAT(push(5), HasSubstr("rank 0 has pushed 2 gradients ahead of update 2"));
  // What was refused has not been counted as there.
  from.minibatch = 1;
  EXPECT_EQ(counter.send(kUpdate, UpdateHead{2, 2, 1, 0.1}, std::as_bytes(std::span(&from, 1)), 1), "");
  EXPECT_EQ(push(5), "");
  EXPECT_EQ(counter.server.numbers().duplicates, 0);
}

TEST(PsMessages, TheSchedulerListensToWorkersOnly) {
  Counter counter(1);
  counter.open();
  EXPECT_THAT(counter.send(kJoin, JoinHead{}, {}, 2), HasSubstr("rank 2 is not one of"));
  EXPECT_THAT(counter.send(kFinished, FinishedHead{}, {}, 2), HasSubstr("rank 2 is not one of"));
  EXPECT_THAT(counter.send(kUpdate, UpdateHead{1, 1, 1, 1}, {}, 1), HasSubstr("not the scheduler"));
  EXPECT_EQ(counter.send(kJoin, JoinHead{}), "");
  FinishedHead finished;
  finished.lr = std::numeric_limits<double>::infinity();
  EXPECT_THAT(counter.send(kFinished, finished), HasSubstr("learning rate of inf"));
  EXPECT_THAT(counter.send(kAskStop, StopHead{0, 999}), HasSubstr("signal 999"));
  EXPECT_THAT(counter.send(kSetDelay, DelayHead{1}), HasSubstr("no max_delay"));
  EXPECT_THAT(counter.send(kStop, StopHead{}), HasSubstr("unexpected message"));
}

TEST(PsMessages, AServerDoesNotPush) {
  for (int rank : {1, 2}) {
    Counter counter(rank);
    counter.open();
    float values[16] = {};
    auto bytes = std::as_bytes(std::span(values));
    const int other = 3 - rank;
    const int64_t range = rank - 1, begin = range * 16;
    for (int64_t update : {0, 1, 7})
      EXPECT_THAT(counter.send(kPush, PushHead{range, begin, 16, 1, update, 1}, bytes, other),
                  HasSubstr("is not one of"));
    EXPECT_THAT(counter.send(kGoodbye, VersionReply{}, {}, other), HasSubstr("is not one of"));
    EXPECT_THAT(counter.send(kOpen, OpenHead{}, {}, other), HasSubstr("is not one of"));
  }
}

TEST(PsMessages, NoMoreBytesAreTakenThanWereAgreedOn) {
  Counter counter;
  std::vector<std::byte> large(20 << 20);
  auto bytes = [&](size_t count) { return std::span<const std::byte>(large).first(count); };
  EXPECT_THAT(counter.send(kPush, PushHead{}, bytes(4)), HasSubstr("at most 0 are accepted"));
  EXPECT_THAT(counter.send(kOpen, OpenHead{}, bytes(large.size())), HasSubstr("are accepted"));
  counter.open();
  EXPECT_THAT(counter.send(kPush, PushHead{1, 16, 16, 1, 0, 1}, bytes(65)), HasSubstr("at most 64 are"));
  EXPECT_THAT(counter.send(kAssign, AssignHead{1, 0, 0, 0}, bytes(65)), HasSubstr("at most 64 are accepted"));
  EXPECT_THAT(counter.send(kPull, PullHead{1, 16, 16, 0}, bytes(1)), HasSubstr("at most 0 are accepted"));
  EXPECT_THAT(counter.send(kPullKeys, KeysHead{1, 2}, bytes(large.size())), HasSubstr("are accepted"));
  EXPECT_EQ(counter.send(kPush, PushHead{1, 16, 16, 1, 0, 1}, bytes(64)), "");
}

TEST(PsMessages, WaitingRequestsOfAWorkerAreBounded) {
  Counter counter;
  counter.open();
  std::string refusal;
  for (int i = 0; i < 1000 && refusal.empty(); ++i) refusal = counter.send(kPull, PullHead{1, 16, 16, 5});
  EXPECT_THAT(refusal, HasSubstr("worker 0 requests version 5 of range 1, which is at 0"));
  EXPECT_THAT(counter.send(kPull, PullHead{1, 16, 16, kMost}), HasSubstr("worker 0 requests version"));
}

TEST(PsMessages, NumbersOfPushesAreInBounds) {
  Counter counter;
  counter.open();
  float values[16] = {};
  auto push = [&](int64_t number, int64_t settled) {
    return counter.send(kPush, PushHead{1, 16, 16, number, 0, 1, 0, settled},
                        std::as_bytes(std::span(values)));
  };
  for (auto [number, settled] : {std::pair<int64_t, int64_t>{0, 0}, {-1, 1}, {3, 4}, {3, 0}, {3, -kMost}})
    EXPECT_THAT(push(number, settled), HasSubstr("nothing was applied")) << number << " " << settled;
  std::string refusal;
  for (int64_t number = 2; number < 100'000 && refusal.empty(); number += 2) refusal = push(number, 1);
  EXPECT_THAT(refusal, HasSubstr("worker 0 skipped 4096 pushes"));
  EXPECT_EQ(push(200'000, 200'000), "") << "it has settled them";
}

TEST(PsMessages, AReplyOfAnotherFormIsAnErrorAndNoWait) {
  ScriptedMessenger messenger(0, 2);
  bool wrong = false;
  messenger.answer_to = [&](int, const comm::Message& request, std::span<std::byte> into) {
    comm::Message reply = message_with(request.kind, OpenReply{});
    if (request.kind == kPull) reply = message_with(kPull, PullReply{}, wrong ? into.first(3) : into);
    return reply;
  };
  LearnerOptions options;
  options.tensors = {64};
  Learner learner(messenger, options);
  std::vector<float> values(64);
  EXPECT_NO_THROW(learner.pull_newest(values.data()));
  wrong = true;
  EXPECT_THROW(learner.pull_newest(values.data()), CommError);
  learner.abandon();
  messenger.answer_to = [](int, const comm::Message&, std::span<std::byte>) { return comm::Message(); };
  EXPECT_THROW(Learner(messenger, options), CommError) << "a head of no bytes";
  EXPECT_THAT(messenger.deliver(1, message_with(kUpdate, UpdateHead{})), HasSubstr("unexpected message"));
  EXPECT_THAT(messenger.deliver(1, message_with(kRelease, ReleaseHead{.minibatch = -2})), HasSubstr("range"));
  EXPECT_THAT(messenger.deliver(1, message_with(kStop, StopHead{.signal = 999})), HasSubstr("range"));
}

}  // namespace
}  // namespace yoke::ps
