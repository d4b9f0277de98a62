#include "yoke/ps/tasks.h"

#include <gtest/gtest.h>

#include <atomic>

#include "yoke/base/error.h"

namespace yoke::ps {
namespace {

Deadline soon() {
  return Deadline::after(60);
}

// Tasks that the test finishes by hand.
struct Held {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<Tasks::Id, Tasks::Finish> started;

  Tasks::Work work(Tasks::Id id) {
    return [this, id](Tasks::Finish finish) {
      std::lock_guard lock(mutex);
      started[id] = std::move(finish);
      changed.notify_all();
    };
  }
  void await(Tasks::Id id) {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return started.count(id) != 0; }));
  }
  void finish(Tasks::Id id, const std::string& error = "") {
    await(id);
    Tasks::Finish own;
    {
      std::lock_guard lock(mutex);
      own = started[id];
    }
    own(error);
  }
  size_t count() {
    std::lock_guard lock(mutex);
    return started.size();
  }
};

TEST(Tasks, BoundedDelayRunsAtMostDelayPlusOneAtATime) {
  for (int64_t delay : {0, 1, 3}) {
    Tasks tasks(4);
    Held held;
    for (Tasks::Id id = 0; id < 12; ++id) tasks.submit(held.work(id), Tasks::bounded_delay(id, delay));
    for (Tasks::Id id = 0; id < 12; ++id) {
      held.await(std::min<Tasks::Id>(id + delay, 11));
      EXPECT_LE(held.count(), static_cast<size_t>(id + delay + 1)) << "a task ran too early";
      held.finish(id);
    }
    tasks.wait_all(soon());
    EXPECT_EQ(tasks.most_in_flight(), delay + 1);
  }
}

TEST(Tasks, BoundedDelayWaitsForEveryOlderTask) {
  Tasks tasks;
  Held held;
  for (Tasks::Id id = 0; id < 4; ++id) tasks.submit(held.work(id), Tasks::bounded_delay(id, 1));
  held.finish(1);
  EXPECT_TRUE(tasks.is_finished(1));
  EXPECT_EQ(held.count(), 2u) << "2 and 3 wait for 0";
  held.finish(0);
  held.finish(2);
  held.finish(3);
  tasks.wait_all(soon());
}

TEST(Tasks, SequentialTasksRunInOrder) {
  Tasks tasks(3);
  std::vector<int64_t> order;
  for (Tasks::Id id = 0; id < 50; ++id)
    tasks.submit(
        [&, id](const Tasks::Finish& finish) {
          order.push_back(id);
          finish("");
        },
        Tasks::sequential(id));
  tasks.wait_all(soon());
  ASSERT_EQ(order.size(), 50u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(tasks.most_in_flight(), 1);
}

TEST(Tasks, EventualTasksDoNotWait) {
  Tasks tasks;
  Held held;
  for (Tasks::Id id = 0; id < 5; ++id) tasks.submit(held.work(id), Tasks::eventual());
  held.await(4);
  EXPECT_EQ(held.count(), 5u);
  for (Tasks::Id id = 4; id >= 0; --id) held.finish(id);
  tasks.wait_all(soon());
}

TEST(Tasks, FollowOwnEdges) {
  Tasks tasks;
  Held held;
  tasks.submit(held.work(0));
  tasks.submit(held.work(1));
  tasks.submit(held.work(2), {0, {0}});
  tasks.submit(held.work(3), {0, {1, 2}});
  held.finish(0);
  held.await(2);
  held.finish(2);
  EXPECT_EQ(held.count(), 3u) << "3 waits for 1";
  held.finish(1);
  held.finish(3);
  tasks.wait(3, soon());
}

TEST(Tasks, AFailureStopsThoseAfterIt) {
  Tasks tasks;
  tasks.submit([](const Tasks::Finish&) { throw CommError("server 1 is gone"); });
  tasks.submit([](const Tasks::Finish& finish) { finish(""); });
  tasks.submit([](const Tasks::Finish& finish) { finish(""); }, {0, {0}});
  tasks.wait(1, soon());
  try {
    tasks.wait(2, soon());
    FAIL() << "it must not run";
  } catch (const CommError& error) {
    EXPECT_STREQ(error.what(), "task 2: it runs after task 0, which failed: server 1 is gone");
  }
  EXPECT_THROW(tasks.wait_all(soon()), CommError);
}

TEST(Tasks, TellWhatIsNotFinishedAtTheDeadline) {
  Tasks tasks;
  Held held;
  tasks.submit(held.work(0));
  tasks.submit(held.work(1), Tasks::sequential(1));
  held.await(0);
  try {
    tasks.wait_all(Deadline::after(0.01));
    FAIL() << "nothing has finished";
  } catch (const CommError& error) {
    EXPECT_STREQ(error.what(), "2 tasks did not finish in time: 0 (runs), 1 (waits)");
  }
  held.finish(0);
  held.finish(1);
  tasks.wait_all(soon());
}

TEST(Tasks, RefuseEdgesToLaterTasks) {
  Tasks tasks;
  EXPECT_THROW(tasks.submit([](const Tasks::Finish&) {}, {0, {0}}), ConfigError);
  EXPECT_THROW(tasks.submit([](const Tasks::Finish&) {}, {1, {}}), ConfigError);
  EXPECT_THROW(tasks.wait(0, soon()), ConfigError);
  EXPECT_THROW(Tasks(0), ConfigError);
}

TEST(Tasks, DropWhatWaitsWhenTheyEnd) {
  std::atomic<int> ran = 0;
  Held held;
  std::thread other;
  {
    Tasks tasks;
    tasks.submit(held.work(0));
    tasks.submit([&](const Tasks::Finish& finish) { ++ran, finish(""); }, Tasks::sequential(1));
    held.await(0);
    // Finishing may let the next one run before the destructor begins, or not.
    other = std::thread([&] { held.finish(0); });
  }
  other.join();
  EXPECT_LE(ran, 1);
}

}  // namespace
}  // namespace yoke::ps
