// Servers that join while training continues, and get homes of others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/ps/test_class.h"

namespace yoke::ps {
namespace {

// Waits until servers have said this so many times. False: not within 20 s.
bool was_said(Class& lesson, const std::string& text, int64_t times) {
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

using Event = std::function<void(Class& lesson, LocalGroup& group)>;
// What happens when worker 0 gets the first minibatch of this version or a later one.
using Events = std::vector<std::pair<int64_t, Event>>;

// Each worker's gradient is the parameters times a number of its own: sums depend on all of them.
std::vector<double> trained_while(Class lesson, const Events& events, int64_t most_lost = 0) {
  std::vector<double> values;
  lesson.run([&](Learner& learner, int worker, LocalGroup& group) {
    std::vector<double> parameters(static_cast<size_t>(learner.elements()));
    size_t next = 0;
    while (learner.wait()) {
      if (worker == 0 && next < events.size() && learner.work().version >= events[next].first)
        events[next++].second(lesson, group);
      if (learner.pull(parameters.data())) step(learner, parameters, 0.1 + 0.01 * worker);
    }
    if (worker != 0) return;
    EXPECT_EQ(next, events.size());
    std::vector<double> momentum(parameters.size());
    learner.fetch_state({parameters.data(), momentum.data()});
    learner.report();
    values = parameters;
    values.insert(values.end(), momentum.begin(), momentum.end());
  });
  EXPECT_EQ(lesson.version, lesson.updates);
  EXPECT_LE(lesson.counts.servers_lost, most_lost);
  return values;
}

Class growing_lesson(plan::Rule rule, int replicas, double clip_norm, const char* backend) {
  return {.policy = {rule, 3, 2, 1},
          .servers = 2,
          .updates = 60,
          .optimizer = {.momentum = 0.9},
          .clip_norm = clip_norm,
          .backend = backend,
          .replicas = replicas,
          .places = 8};
}

void one_joins(Class& lesson, LocalGroup&) {
  lesson.join_server();
}

// The other workers push meanwhile, as far as the rule lets them.
Event await_words(const char* text, int64_t times) {
  return [=](Class& lesson, LocalGroup&) { EXPECT_TRUE(was_said(lesson, text, times)) << text; };
}

TEST(PsServerJoin, TheResultIsTheSame) {
  for (int replicas : {0, 1})
    for (double clip_norm : {0.0, 0.5})
      for (const char* backend : {"shm", "tcp"}) {
        SCOPED_TRACE(fmt::format("{} copies, clipped to {}, over {}", replicas, clip_norm, backend));
        const Class lesson = growing_lesson(plan::Rule::kSync, replicas, clip_norm, backend);
        const std::vector<double> undisturbed = trained_while(lesson, {});
        EXPECT_EQ(trained_while(lesson, {{5, one_joins}, {40, await_words("serves home", 2)}}), undisturbed);
      }
}

TEST(PsServerJoin, ServersJoinOneAfterTheOtherUntilTheHomesAreShared) {
  Class lesson = growing_lesson(plan::Rule::kSync, 0, 0.5, "shm");
  const std::vector<double> undisturbed = trained_while(lesson, {});
  // Of 8 homes, two servers have 4 each; then 3, 3, 2, and in the end 2 each.
  EXPECT_EQ(trained_while(lesson, {{5, one_joins},
                                   {15, await_words("serves home", 2)},
                                   {16, one_joins},
                                   {40, await_words("serves home", 4)}}),
            undisturbed);
}

// Under other rules than sync nobody waits for worker 0, and the run may end before homes have moved.
TEST(PsServerJoin, EveryRuleContinues) {
  for (const std::string& name : plan::rule_names())
    for (int replicas : {0, 1}) {
      SCOPED_TRACE(fmt::format("{} with {} copies", name, replicas));
      const plan::Rule rule = plan::parse_rule(name);
      Events events = {{0, one_joins}};
      if (rule == plan::Rule::kSync) events.emplace_back(30, await_words("serves home", 2));
      EXPECT_FALSE(trained_while(growing_lesson(rule, replicas, 0, "shm"), events).empty());
    }
}

// A joiner that is lost is server 2.
void close_joiner(Class& lesson, LocalGroup& group) {
  lesson.close_server(group, 2);
}

TEST(PsServerJoin, AJoinerIsLostBeforeItServes) {
  for (int replicas : {0, 1}) {
    Class lesson = growing_lesson(plan::Rule::kSync, replicas, 0.5, "shm");
    const std::vector<double> undisturbed = trained_while(lesson, {});
    auto come_and_go = [](Class& own, LocalGroup& group) {
      own.join_server();
      close_joiner(own, group);
    };
    EXPECT_EQ(trained_while(lesson, {{5, come_and_go}}, /*most_lost=*/1), undisturbed) << replicas;
  }
}

TEST(PsServerJoin, WithCopiesAnyServerMayBeLostAfterwards) {
  Class lesson = growing_lesson(plan::Rule::kSync, 1, 0.5, "shm");
  const std::vector<double> undisturbed = trained_while(lesson, {});
  for (int lost : {0, 1, 2}) {
    auto close = [lost](Class& own, LocalGroup& group) { own.close_server(group, lost); };
    EXPECT_EQ(trained_while(lesson, {{5, one_joins}, {20, await_words("serves home", 2)}, {25, close}}, 1),
              undisturbed)
        << lost;
  }
}

TEST(PsServerJoin, WithCopiesTheOldOwnerMayBeLostWhileItHandsOver) {
  Class lesson = growing_lesson(plan::Rule::kSync, 1, 0.5, "shm");
  const std::vector<double> undisturbed = trained_while(lesson, {});
  for (int lost : {0, 1}) {
    auto come_then_close = [lost](Class& own, LocalGroup& group) {
      own.join_server();
      own.close_server(group, lost);
    };
    EXPECT_EQ(trained_while(lesson, {{5, come_then_close}}, 1), undisturbed) << lost;
  }
}

TEST(PsServerJoin, AServerWithoutCopiesLeaves) {
  for (int leaving : {0, 1})
    for (double clip_norm : {0.0, 0.5}) {
      SCOPED_TRACE(fmt::format("server {}, clipped to {}", leaving, clip_norm));
      Class lesson = growing_lesson(plan::Rule::kSync, 0, clip_norm, "shm");
      const std::vector<double> undisturbed = trained_while(lesson, {});
      lesson.leaves = leaving;
      auto leave = [](Class& own, LocalGroup&) { EXPECT_EQ(own.ask_to_leave(), ""); };
      EXPECT_EQ(trained_while(lesson, {{10, leave}}), undisturbed);
    }
}

}  // namespace
}  // namespace yoke::ps
