// Copies that are made anew after a server is lost, and servers that leave.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/ps/test_class.h"
#include "yoke/ps/test_messenger.h"

namespace yoke::ps {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

// Waits until servers have said this so many times. False: not within 20 s.
bool heard(Class& lesson, const std::string& text, int64_t times) {
  for (const Deadline patience = Deadline::after(20); !patience.passed();) {
    {
      std::lock_guard lock(Class::news_mutex());
      const auto said = std::count_if(lesson.news.begin(), lesson.news.end(), [&](const std::string& line) {
        return line.find(text) != std::string::npos;
      });
      if (said >= times) return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

struct Loss {
  int64_t version;  // at which worker 0 closes the server
  int server;
  int64_t copies;  // that were made anew when the next version may begin
};

// Each worker's gradient is the parameters times a number of its own: sums depend on all of them.
std::vector<double> trained(Class lesson, const std::vector<Loss>& losses) {
  std::vector<double> values;
  std::atomic<size_t> next = 0;  // of the losses
  // Rules that wait for nobody would end the lesson before the last loss.
  const auto ends_too_early = [&](Learner& learner) {
    return next < losses.size() && learner.work().version >= lesson.updates - 4;
  };
  lesson.run([&](Learner& learner, int worker, LocalGroup& group) {
    std::vector<double> parameters(static_cast<size_t>(learner.elements()));
    while (learner.wait()) {
      for (const Deadline patience = Deadline::after(20);
           worker != 0 && ends_too_early(learner) && !patience.passed();)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (worker == 0 && next < losses.size() && learner.work().version >= losses[next].version) {
        lesson.close_server(group, losses[next].server);
        // The other workers push meanwhile.
        if (learner.pull(parameters.data())) step(learner, parameters, 0.1);
        EXPECT_TRUE(heard(lesson, "has a copy of the parameters", losses[next].copies));
        ++next;
        continue;
      }
      if (learner.pull(parameters.data())) step(learner, parameters, 0.1 + 0.01 * worker);
    }
    if (worker != 0) return;
    std::vector<double> momentum(parameters.size());
    learner.fetch_state({parameters.data(), momentum.data()});
    learner.report();
    values = parameters;
    values.insert(values.end(), momentum.begin(), momentum.end());
  });
  EXPECT_EQ(lesson.version, lesson.updates);
  EXPECT_EQ(lesson.counts.servers_lost, static_cast<int64_t>(losses.size()));
  return values;
}

Class lesson_of(plan::Rule rule, int replicas, double clip_norm, const char* backend) {
  return {.policy = {rule, 3, 2, 1},
          .servers = 4,
          .updates = 40,
          .optimizer = {.momentum = 0.9},
          .clip_norm = clip_norm,
          .backend = backend,
          .replicas = replicas};
}

TEST(PsServerCopies, NeighboursAreLostOneAfterTheOther) {
  int backends = 0;
  for (double clip_norm : {0.0, 0.5}) {
    const std::vector<double> undisturbed = trained(lesson_of(plan::Rule::kSync, 1, clip_norm, "shm"), {});
    for (int first : {0, 1, 3}) {
      const char* backend = ++backends % 2 == 0 ? "shm" : "tcp";
      SCOPED_TRACE(fmt::format("servers from {}, clipped to {}, over {}", first, clip_norm, backend));
      // The home of the lost server and the one before it need a copy each; then one more home is concerned.
      EXPECT_EQ(trained(lesson_of(plan::Rule::kSync, 1, clip_norm, backend),
                        {{8, first, 2}, {20, (first + 1) % 4, 5}}),
                undisturbed);
    }
  }
}

TEST(PsServerCopies, ThreeOfFourServersAreLostWithTwoCopies) {
  const std::vector<double> undisturbed = trained(lesson_of(plan::Rule::kSync, 2, 0.5, "shm"), {});
  EXPECT_EQ(trained(lesson_of(plan::Rule::kSync, 2, 0.5, "shm"), {{8, 0, 3}, {18, 1, 3}, {28, 2, 3}}),
            undisturbed);
}

TEST(PsServerCopies, EveryRuleSurvivesNeighbours) {
  for (const std::string& name : plan::rule_names()) {
    SCOPED_TRACE(name);
    trained(lesson_of(plan::parse_rule(name), 1, 0, "shm"), {{8, 0, 2}, {20, 1, 5}});
  }
}

TEST(PsServerCopies, AServerLeavesAndTheResultIsTheSame) {
  for (int leaving : {0, 2}) {
    Class lesson = lesson_of(plan::Rule::kSync, 1, 0.5, "shm");
    const std::vector<double> undisturbed = trained(lesson, {});
    std::vector<double> values;
    lesson.leaves = leaving;
    lesson.run([&](Learner& learner, int worker, LocalGroup&) {
      std::vector<double> parameters(static_cast<size_t>(learner.elements()));
      bool asked = false;
      while (learner.wait()) {
        if (worker == 0 && learner.work().version >= 10 && !std::exchange(asked, true)) {
          EXPECT_EQ(lesson.ask_to_leave(), "");
        }
        if (learner.pull(parameters.data())) step(learner, parameters, 0.1 + 0.01 * worker);
      }
      if (worker != 0) return;
      std::vector<double> momentum(parameters.size());
      learner.fetch_state({parameters.data(), momentum.data()});
      learner.report();
      values = parameters;
      values.insert(values.end(), momentum.begin(), momentum.end());
    });
    EXPECT_EQ(values, undisturbed);
    EXPECT_EQ(lesson.counts.servers_lost, 0);
    EXPECT_TRUE(heard(lesson, fmt::format("parameter server {} (rank {}) left", leaving, 3 + leaving), 1));
  }
}

// A server of four that talks to nobody, and one worker.
struct Alone {
  explicit Alone(int index, int replicas = 1, double timeout = 300)
      : messenger(1 + index, 5), server(messenger, [&] {
          ServerOptions options;
          options.servers = 4;
          options.replicas = replicas;
          options.timeout = timeout;
          options.make_updater = make_adder();
          options.make_rule = [](int) { return sparse::make_rule({}); };
          options.scheduler.policy = {plan::Rule::kSync, 1, 0, 0};
          options.scheduler.say = [this](const std::string& text) { news.push_back(text); };
          return options;
        }()) {}
  void open() {
    std::vector<int64_t> tensors = {64};
    OpenHead head{64, 64, 2, DataType::kFloat32};
    ASSERT_EQ(messenger.deliver(0, message_with(kOpen, head, std::as_bytes(std::span(tensors)))), "");
  }
  std::string send(CopyHead head, std::span<const std::byte> payload = {}, int from = 2) {
    return messenger.deliver(from, message_with(kCopy, head, payload));
  }
  std::string leave() {
    std::string refusal;
    server.ask_to_leave([&](const std::string& why) { refusal = why; });
    return refusal;
  }
  std::vector<std::string> news;
  ScriptedMessenger messenger;
  Server server;
};

TEST(PsServerCopies, ATableOpenedBeforeTheCopyBeginsIsInIt) {
  Alone second(1);
  second.open();
  std::vector<int64_t> sent;
  second.messenger.answer_to = [&](int, const comm::Message& request, std::span<std::byte>) {
    if (request.kind != kCopy) return comm::Message();
    const auto head = request.get_head<CopyHead>();
    if (head.home == 1) sent.push_back(head.what);
    if (head.what == CopyHead::kAsk && head.home == 1) {
      sparse::OpenTableHead table{.keys = 1000, .home = 1};
      EXPECT_EQ(second.messenger.deliver(0, message_with(kOpenTable, table)), "");
    }
    return message_with(kCopy, CopyReply{.complete = head.home == 1 ? 0 : 1});
  };
  second.messenger.lose(3);
  EXPECT_THAT(sent, testing::ElementsAre(CopyHead::kAsk, CopyHead::kBegin, CopyHead::kTables,
                                         CopyHead::kRange, CopyHead::kRows, CopyHead::kEnd));
}

TEST(PsServerCopies, AServerThatTakesNoCopyIsAskedAgainAndTheSourceGoesOn) {
  Alone second(1, /*replicas=*/1, /*timeout=*/0);
  second.open();
  second.messenger.answer_to = [&](int peer, const comm::Message& request, std::span<std::byte>) {
    if (request.kind != kCopy) return comm::Message();
    const auto head = request.get_head<CopyHead>();
    if (head.what == CopyHead::kAsk) second.messenger.silent.insert(peer);  // from now on
    return message_with(kCopy, CopyReply{.complete = 0});
  };
  second.messenger.lose(3);
  EXPECT_THAT(second.news, Contains(HasSubstr("parameter server 3 (rank 4) did not take a copy")));
  ASSERT_EQ(second.messenger.later.size(), 1U);
  EXPECT_GT(second.messenger.later[0].first, 0);
  second.messenger.silent.clear();
  second.messenger.answer_to = [](int, const comm::Message&, std::span<std::byte>) {
    return message_with(kCopy, CopyReply{.complete = 0});
  };
  second.messenger.later[0].second();
  EXPECT_THAT(second.news, Contains(HasSubstr("has a copy of the parameters of server 1 now: 1 of 1")));
}

TEST(PsServerCopies, ALostHomeIsNamedToThoseWhoAskForIt) {
  Alone last(3);
  last.open();
  PullHead pull{1, 16, 16, 0};
  last.messenger.lose(2);
  last.messenger.lose(3);
  EXPECT_THAT(last.messenger.deliver(0, message_with(kPull, pull)),
              HasSubstr("parameter server 1 (rank 2), parameter server 2 (rank 3) are lost: nobody holds the "
                        "parameters of server 1 any more"));
}

TEST(PsServerCopies, PartsOfACopyThatCannotBeAreRefused) {
  Alone third(3);
  third.open();
  EXPECT_THAT(third.send({.home = 9}), HasSubstr("there are 4"));
  EXPECT_THAT(third.send({.home = 3, .what = CopyHead::kBegin}), HasSubstr("two servers claim"));
  EXPECT_THAT(third.send({.home = 1, .what = CopyHead::kRange, .range = 1}), HasSubstr("has not begun"));
  EXPECT_THAT(third.send({.home = 1, .number = -1, .what = CopyHead::kBegin}), HasSubstr("after entry -1"));
  EXPECT_THAT(third.send({.home = 1, .what = CopyHead::kBegin}, {}, 0), HasSubstr("unexpected message"));
  EXPECT_EQ(third.send({.home = 1, .number = 5, .what = CopyHead::kBegin}), "");
  EXPECT_THAT(third.send({.home = 1, .what = CopyHead::kEnd}), HasSubstr("without range 1"));
  EXPECT_THAT(third.send({.home = 1, .what = CopyHead::kRange, .range = 0}), HasSubstr("range 0"));
  EXPECT_THAT(third.send({.home = 1, .what = CopyHead::kRange, .range = 1}), HasSubstr("bytes where"));
  const std::vector<std::byte> noise(4096, std::byte{0x7f});
  EXPECT_NE(third.send({.home = 1, .what = CopyHead::kRange, .range = 1}, noise), "");
}

TEST(PsServerCopies, ASchedulerIsNotLoadedFromNoise) {
  Alone second(2);
  second.open();
  EXPECT_EQ(second.send({.home = 0, .what = CopyHead::kBegin}), "");
  const std::vector<std::byte> noise(4096, std::byte{0x01});
  EXPECT_NE(second.send({.home = 0, .what = CopyHead::kEnd}, noise), "");
}

TEST(PsServerCopies, AServerThatNobodyCanReplaceDoesNotLeave) {
  EXPECT_THAT(Alone(1, /*replicas=*/0).leave(), HasSubstr("ps.replicas = 0"));
  Alone one(1);
  one.open();
  for (int peer : {1, 3, 4}) one.messenger.lose(peer);
  EXPECT_THAT(one.leave(), HasSubstr("is the last server"));
  Alone two(1);
  two.open();
  EXPECT_EQ(two.leave(), "");
  EXPECT_THAT(two.leave(), HasSubstr("is leaving already"));
}

}  // namespace
}  // namespace yoke::ps
