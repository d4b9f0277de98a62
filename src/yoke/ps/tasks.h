// Asynchronous tasks with "execute after finished" edges: how consistent a computation is, is which edges it
// has.
//
//   yoke::ps::Tasks tasks;
//   for (int64_t t = 0; t < rounds; ++t)
//     tasks.submit([&](Tasks::Finish finish) { client.push(…, finish); }, Tasks::bounded_delay(t, 4));
//   tasks.wait_all(deadline);
//
//   sequential     task t runs after t-1 is finished
//   bounded delay  task t runs after every task before t - delay is finished: at most delay + 1 at a time
//   eventual       no edges
//
// Tasks start on threads of this object, in the order of their numbers where edges allow it. Starting a task
// and finishing it are two events: a task is finished when `finish` is called, by any thread, once.
// Thread-safe. The destructor waits until tasks that run are finished (give what they wait for a deadline)
// and drops the others.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "yoke/base/deadline.h"

namespace yoke::ps {

class Tasks {
 public:
  using Id = int64_t;  // 0, 1, 2, … in the order of submit()
  // Empty: done. Otherwise the task has failed, and those after it are not run.
  using Finish = std::function<void(const std::string& error)>;
  // May throw instead of finishing with an error. Must call `finish` at some time otherwise.
  using Work = std::function<void(Finish finish)>;

  // What a task runs after.
  struct After {
    Id all_below = 0;       // every task with a lower number
    std::vector<Id> these;  // and these
  };
  static After sequential(Id id) { return {id, {}}; }
  static After bounded_delay(Id id, int64_t delay) { return {id - delay, {}}; }
  static After eventual() { return {}; }

  // Throws ConfigError unless 1 <= threads <= 256.
  explicit Tasks(int threads = 1);
  ~Tasks();

  // Throws ConfigError for an edge to a task that was not submitted before.
  Id submit(Work work, After after);
  Id submit(Work work) { return submit(std::move(work), eventual()); }
  // Throw CommError at the deadline, naming what is not finished, or if the task failed or was not run.
  void wait(Id id, Deadline deadline);
  void wait_all(Deadline deadline);
  bool is_finished(Id id) const;
  int64_t most_in_flight() const;  // started and not finished, at most so far

 private:
  struct Task {
    Work work;
    After after;
    bool started = false;
  };
  void run();
  bool is_ready(const Task& task) const;
  std::string failure_before(const Task& task) const;
  void finished(Id id, const std::string& error);
  void end(Id id, const std::string& error);
  std::string unfinished() const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Id, Task> open_;           // not finished
  std::map<Id, std::string> failed_;  // finished with an error
  Id next_ = 0;
  int64_t in_flight_ = 0, most_in_flight_ = 0;
  bool leaving_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace yoke::ps
