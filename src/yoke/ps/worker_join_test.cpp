// Workers that join and leave while training continues.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/ps/test_class.h"

namespace yoke::ps {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Waits for a condition. False: not within 60 s.
bool comes_true(const std::function<bool()>& condition) {
  for (const Deadline patience = Deadline::after(60); !patience.passed();) {
    {
      std::lock_guard lock(Class::news_mutex());
      if (condition()) return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

bool was_said(const Class& lesson, const std::string& text) {
  return std::any_of(lesson.news.begin(), lesson.news.end(),
                     [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

using Event = std::function<void(Class& lesson, LocalGroup& group)>;
// What happens when worker 0 gets the first minibatch of this version or a later one.
using Events = std::vector<std::pair<int64_t, Event>>;

double slope_of(int64_t batch) {
  return 0.1 + 0.01 * static_cast<double>(batch % 17);
}

// The gradient of a batch is the parameters times a number of its own: sums depend on every batch.
std::vector<double> train(Class& lesson, const Events& events) {
  std::vector<double> values;
  std::atomic<bool> done = events.empty();
  lesson.run([&](Learner& learner, int worker, LocalGroup& group) {
    std::vector<double> parameters(static_cast<size_t>(learner.elements()));
    size_t next = 0;
    const Deadline patience = Deadline::after(60);
    while (learner.wait()) {
      if (worker == 0)
        for (; next < events.size() && learner.work().version >= events[next].first; ++next)
          events[next].second(lesson, group);
      if (worker == 0 && next == events.size()) done = true;
      // Under rules without rounds the others would be at the end before anything happens.
      while (worker != 0 && learner.work().version >= lesson.updates - 15 && !done && !patience.passed())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (learner.pull(parameters.data())) step(learner, parameters, slope_of(learner.work().batch()));
    }
    if (worker != 0) return;
    EXPECT_EQ(next, events.size());
    std::vector<double> momentum(parameters.size());
    learner.fetch_state({parameters.data(), momentum.data()});
    learner.await_end();
    learner.report();
    values = parameters;
    values.insert(values.end(), momentum.begin(), momentum.end());
  });
  EXPECT_EQ(lesson.version, lesson.updates);
  return values;
}

Class lesson_of(plan::Rule rule, const char* backend = "shm") {
  return {.policy = {rule, 2, 2, 1},
          .servers = 2,
          .updates = 60,
          .optimizer = {.momentum = 0.9},
          .backend = backend,
          .late_workers = 3};
}

void one_joins(Class& lesson, LocalGroup&) {
  lesson.join_worker();
}
Event until_said(const std::string& text) {
  return [text](Class& lesson, LocalGroup&) {
    EXPECT_TRUE(comes_true([&] { return was_said(lesson, text); })) << text;
  };
}
Event leaves(int worker) {
  return [worker](Class& lesson, LocalGroup&) { EXPECT_EQ(lesson.let_go(worker), "") << worker; };
}

// What one device computes with the batches that each update took, in that order.
std::vector<double> on_one_device(const Class& lesson, size_t elements) {
  double w = 1, momentum = 0;
  for (const UpdateRecord& record : lesson.records) {
    double gradient = 0;
    for (int64_t batch : record.batches) gradient += slope_of(batch) * w;
    momentum = 0.9 * momentum + gradient / static_cast<double>(record.batches.size());
    w -= 0.1 * momentum;
  }
  std::vector<double> all(elements, w);
  std::fill(all.begin() + static_cast<std::ptrdiff_t>(elements / 2), all.end(), momentum);
  return all;
}

void expect_each_batch_once(const Class& lesson) {
  std::vector<int64_t> used;
  for (const UpdateRecord& record : lesson.records)
    used.insert(used.end(), record.batches.begin(), record.batches.end());
  std::sort(used.begin(), used.end());
  EXPECT_EQ(std::adjacent_find(used.begin(), used.end()), used.end()) << "a batch was used twice";
  ASSERT_TRUE(lesson.counts.batches);
  EXPECT_EQ(lesson.counts.batches->used, static_cast<int64_t>(used.size()));
  EXPECT_EQ(lesson.counts.batches->twice, 0);
  // What nobody has used when the run ends was being computed: by at most so many.
  EXPECT_LE(used.back() + 1 - static_cast<int64_t>(used.size()), lesson.policy.workers + lesson.late_workers);
  std::vector<int64_t> first(static_cast<size_t>(lesson.counts.batches->complete));
  std::iota(first.begin(), first.end(), 0);
  used.resize(first.size());
  EXPECT_EQ(used, first);
}

TEST(PsWorkerJoin, UnderSyncTheResultIsThatOfOneDeviceWithTheSameBatches) {
  for (const char* backend : {"shm", "tcp"}) {
    SCOPED_TRACE(backend);
    Class lesson = lesson_of(plan::Rule::kSync, backend);
    const std::vector<double> values = train(lesson, {{5, one_joins},
                                                      {6, until_said("worker 2 joined")},
                                                      {15, one_joins},
                                                      {16, until_said("worker 3 joined")},
                                                      {25, leaves(1)},
                                                      {35, leaves(2)}});
    const std::vector<double> expected = on_one_device(lesson, values.size());
    ASSERT_EQ(values.size(), expected.size());
    for (size_t i = 0; i < values.size(); i += 97) EXPECT_NEAR(values[i], expected[i], 1e-12) << i;
    expect_each_batch_once(lesson);
    EXPECT_EQ(lesson.counts.batches->used, lesson.counts.batches->complete);
    size_t most = 0;
    for (const UpdateRecord& record : lesson.records) most = std::max(most, record.batches.size());
    EXPECT_EQ(most, 4U) << "all four have worked together";
    EXPECT_EQ(lesson.records.back().batches.size(), 2U) << "and two have left";
    EXPECT_EQ(lesson.counts.workers.size(), 4U);
  }
}

TEST(PsWorkerJoin, EveryRuleGoesOnWithWorkersThatJoinAndLeave) {
  for (const std::string& name : plan::rule_names())
    for (int replicas : {0, 1}) {
      SCOPED_TRACE(fmt::format("{} with {} copies", name, replicas));
      Class lesson = lesson_of(plan::parse_rule(name));
      lesson.replicas = replicas;
      lesson.updates = 400;
      std::atomic<bool> done = false;
      lesson.run([&](Learner& learner, int worker, LocalGroup& group) {
        std::vector<double> parameters(static_cast<size_t>(learner.elements()));
        int stage = 0;
        const Deadline patience = Deadline::after(60);
        while (learner.wait()) {
          if (worker == 0 && stage == 0 && learner.work().version >= 20) {
            one_joins(lesson, group);
            until_said("worker 2 joined")(lesson, group);
            ++stage;
          }
          if (worker == 0 && stage == 1 && learner.work().version >= 60) {
            leaves(1)(lesson, group);
            ++stage;
            done = true;
          }
          while (worker != 0 && learner.work().version >= 300 && !done && !patience.passed())
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          if (learner.pull(parameters.data())) step(learner, parameters, 0.01);
        }
        if (worker != 0) return;
        EXPECT_EQ(stage, 2);
        learner.fetch_state({parameters.data()});
        learner.await_end();
        learner.report();
      });
      EXPECT_EQ(lesson.version, 400);
      EXPECT_THAT(lesson.news, AllOf(Contains(HasSubstr("worker 2 joined")),
                                     Contains(HasSubstr("worker 1 leaves at version"))));
      expect_each_batch_once(lesson);
    }
}

TEST(PsWorkerJoin, WhatAWorkerSendsThatHasLeftMeanwhileIsCancelled) {
  ReleaseHead work[2];
  std::vector<int> stopped;
  SchedulerWire wire;
  wire.release = [&](int worker, const ReleaseHead& head) { work[worker] = head; };
  wire.update = [](const UpdateHead&, const std::vector<Contributor>&) {};
  wire.stop = [&](int worker, const StopHead&) { stopped.push_back(worker); };
  SchedulerOptions options;
  options.policy = {plan::Rule::kKSync, 2, 1, 0};
  options.hands_out = true;
  Scheduler scheduler(options, wire);
  scheduler.joined(0, 0);
  scheduler.joined(1, 0);
  const ReleaseHead late = work[1];
  scheduler.let_go(1);
  EXPECT_THAT(stopped, IsEmpty()) << "it computes";
  const auto finished = [&](int worker, const ReleaseHead& head) {
    const GrantReply reply =
        scheduler.finished(worker, {.version = head.version, .minibatch = head.minibatch});
    return static_cast<plan::Verdict>(reply.verdict);
  };
  EXPECT_EQ(finished(0, work[0]), plan::Verdict::kAccepted);
  EXPECT_THAT(stopped, ElementsAre(1)) << "its minibatch is cancelled by the update";
  EXPECT_EQ(finished(1, late), plan::Verdict::kCancelled);
  EXPECT_EQ(scheduler.version(), 1);
}

TEST(PsWorkerJoin, WhatALostWorkerHadIsHandedOutAgain) {
  Class lesson = lesson_of(plan::Rule::kSync);
  std::atomic<bool> gone = false;
  lesson.run([&](Learner& learner, int worker, LocalGroup& group) {
    std::vector<double> parameters(static_cast<size_t>(learner.elements()));
    while (learner.wait()) {
      if (worker == 0 && learner.work().version == 5) one_joins(lesson, group);
      if (worker == 0 && learner.work().version == 5) until_said("worker 2 joined")(lesson, group);
      if (worker == 2 && learner.work().version >= 10) {
        learner.abandon();
        group.close(2);
        gone = true;
        return;
      }
      if (learner.pull(parameters.data())) step(learner, parameters, slope_of(learner.work().batch()));
    }
    if (worker != 0) return;
    EXPECT_TRUE(gone);
    learner.fetch_state({parameters.data()});
    learner.await_end();
    learner.report();
  });
  EXPECT_EQ(lesson.version, lesson.updates);
  expect_each_batch_once(lesson);
  EXPECT_EQ(lesson.counts.batches->given_back, 1);
  EXPECT_EQ(lesson.counts.batches->used, lesson.counts.batches->complete);
  EXPECT_THAT(lesson.news, Contains(HasSubstr("worker 2 is lost")));
}

TEST(PsWorkerJoin, WhoMayNotLeaveIsToldWhy) {
  Class lesson = lesson_of(plan::Rule::kSync);
  lesson.min_workers = 2;
  train(lesson, {{5, [](Class& own, LocalGroup&) {
                    EXPECT_THAT(own.let_go(0), HasSubstr("writes records and checkpoints"));
                    EXPECT_THAT(own.let_go(1), HasSubstr("ps.min_workers = 2"));
                    EXPECT_THAT(own.let_go(2), HasSubstr("worker 2 is not in this job"));
                    EXPECT_THAT(own.let_go(77), HasSubstr("worker 77 is not in this job"));
                  }}});
  Class fixed = lesson_of(plan::Rule::kSync);
  fixed.late_workers = 0;
  train(fixed,
        {{5, [](Class& own, LocalGroup&) { EXPECT_THAT(own.let_go(1), HasSubstr("ps.max_workers = 0")); }}});
}

TEST(PsWorkerJoin, TheSchedulersServerIsLostAfterwards) {
  for (auto rule : {plan::Rule::kSync, plan::Rule::kAsync}) {
    Class lesson = lesson_of(rule);
    lesson.replicas = 1;
    lesson.servers = 3;
    train(lesson, {{5, one_joins},
                   {6, until_said("worker 2 joined")},
                   {12, [](Class& own, LocalGroup& group) { own.close_server(group, 0); }},
                   {20, until_said("took over")},
                   {21, leaves(2)}});
    EXPECT_LE(lesson.counts.servers_lost, 1);
    ASSERT_TRUE(lesson.counts.batches);
    EXPECT_EQ(lesson.counts.batches->twice, 0);
  }
}

TEST(PsWorkerJoin, AServerJoinsBesides) {
  for (const char* backend : {"shm", "tcp"}) {
    SCOPED_TRACE(backend);
    Class lesson = lesson_of(plan::Rule::kSync, backend);
    lesson.places = 8;
    const std::vector<double> values = train(lesson, {{5, one_joins},
                                                      {5, [](Class& own, LocalGroup&) { own.join_server(); }},
                                                      {6, one_joins},
                                                      {7, until_said("worker 2 joined")},
                                                      {7, until_said("worker 3 joined")},
                                                      {20, until_said("serves home")}});
    const std::vector<double> expected = on_one_device(lesson, values.size());
    for (size_t i = 0; i < values.size(); i += 97) EXPECT_NEAR(values[i], expected[i], 1e-12) << i;
    expect_each_batch_once(lesson);
  }
}

TEST(PsWorkerJoin, AJoinerThatIsLostBeforeItJoinsChangesNothing) {
  Class lesson = lesson_of(plan::Rule::kSync);
  train(lesson, {{5,
                  [](Class& own, LocalGroup& group) {
                    group.open_again(2);
                    Learner opened(group.messenger(2), own.learner_options());
                    opened.abandon();
                    group.close(2);
                  }},
                 {6, until_said("worker 2 was lost before it had joined")}});
  EXPECT_EQ(lesson.counts.workers.size(), 2U);
  expect_each_batch_once(lesson);
}

TEST(PsWorkerJoin, AWorkerThatConnectsAndNeverJoinsIsLeftBehind) {
  Class lesson = lesson_of(plan::Rule::kSync);
  train(lesson, {{5, [](Class&, LocalGroup& group) { group.open_again(2); }}});
  EXPECT_THAT(lesson.news, Contains(HasSubstr("ends without a worker that has not joined")));
  EXPECT_EQ(lesson.counts.workers.size(), 2U);
}

TEST(PsWorkerJoin, TooFewThatAreLeftEndTheJob) {
  Class lesson = lesson_of(plan::Rule::kSync);
  lesson.min_workers = 2;
  lesson.updates = 1'000'000;
  std::string problem;
  lesson.failed = [&](const std::string& why) { problem = why; };
  lesson.run([&](Learner& learner, int worker, LocalGroup& group) {
    std::vector<double> parameters(static_cast<size_t>(learner.elements()));
    while (learner.wait()) {
      if (worker == 1 && learner.work().version >= 10) {
        learner.abandon();
        group.close(1);
        return;
      }
      if (worker == 0 && learner.work().version >= 50) break;
      if (learner.pull(parameters.data())) step(learner, parameters, 0.01);
    }
  });
  EXPECT_THAT(problem, HasSubstr("worker 1 is lost: 1 left, and ps.min_workers = 2"));
}

}  // namespace
}  // namespace yoke::ps
