// What workers tell when they leave: it travels with their last message, and nobody waits for it alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "yoke/ps/test_class.h"

namespace yoke::ps {
namespace {

WorkerEnd end_of(int worker) {
  WorkerEnd end{.peak_memory = 100 + worker, .has_tables = 1};
  int64_t next = 10 * worker;
  for (const auto& [name, count] : kTableCounts) end.tables.*count = ++next;
  return end;
}

// Trains, and returns what worker 0 hears of the others. `lost`: a worker that says no goodbye.
std::vector<WorkerEnd> heard(Class lesson, int lost = -1) {
  std::vector<WorkerEnd> ends;
  lesson.run([&](Learner& learner, int worker, LocalGroup& group) {
    std::vector<double> parameters(static_cast<size_t>(learner.elements()));
    while (learner.wait())
      if (learner.pull(parameters.data())) step(learner, parameters, 0.5);
    if (worker == lost) {
      learner.abandon();
      return group.close(worker);
    }
    if (worker != 0) return learner.goodbye(end_of(worker));
    ends = learner.await_end();
    learner.report();
  });
  return ends;
}

TEST(PsWorkerEnd, TheFirstHearsWhatEachHasTold) {
  for (int servers : {1, 3})
    for (int replicas = 0; replicas < servers; ++replicas)
      EXPECT_EQ(heard({.policy = {plan::Rule::kSync, 3, 0, 0}, .servers = servers, .replicas = replicas}),
                (std::vector<WorkerEnd>{{}, end_of(1), end_of(2)}));
}

TEST(PsWorkerEnd, OneThatIsLostHasToldNothing) {
  EXPECT_EQ(heard({.policy = {plan::Rule::kAsync, 3, 0, 0}}, /*lost=*/1),
            (std::vector<WorkerEnd>{{}, {}, end_of(2)}));
}

TEST(PsWorkerEnd, TheReportHasTheSumOfThoseThatTold) {
  const nlohmann::json counted = to_json(std::vector<WorkerEnd>{end_of(0), {}, end_of(2)});
  ASSERT_EQ(counted.at("workers").size(), 2u);
  EXPECT_EQ(counted.at("workers")[1].at("worker"), 2);
  for (const auto& [name, count] : kTableCounts)
    EXPECT_EQ(counted.at(name), end_of(0).tables.*count + end_of(2).tables.*count) << name;
}

TEST(PsWorkerEnd, CountsOutOfRangeAreNotSane) {
  EXPECT_TRUE(end_of(1).is_sane());
  WorkerEnd wrong = end_of(1);
  wrong.tables.rows_skipped = -1;
  EXPECT_FALSE(wrong.is_sane());
  EXPECT_FALSE((WorkerEnd{.peak_memory = -1}).is_sane());
}

}  // namespace
}  // namespace yoke::ps
