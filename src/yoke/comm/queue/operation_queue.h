// Collectives in the order of issue, one at a time. Whoever can runs the head: a caller that waits, or the
// queue's own thread, which takes large operations at once and small ones when their caller polls done() or
// does not wait for them soon.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "yoke/comm/queue/queued_communicator.h"

namespace yoke::comm {

class OperationQueue {
 public:
  OperationQueue(Backend& backend, const GroupInfo& group, const JobLink& job);
  ~OperationQueue();  // waits until everything issued has ended (each has its deadline)

  Pending issue(Operation operation, double timeout);

  // From here on every operation fails with `error` (the ranks are no longer in step).
  void break_with(std::exception_ptr error);

 private:
  struct Task;
  void wait(Task& task);
  void run_head(std::unique_lock<std::mutex>& lock);
  void background();
  void begin_in_background();
  uint64_t sleep(std::unique_lock<std::mutex>& lock);
  void add_long_wait(std::vector<cluster::Wait>& waits);

  Backend& backend_;
  const GroupInfo& group_;
  const JobLink& job_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable ended_;
  std::deque<std::shared_ptr<Task>> tasks_;
  std::shared_ptr<Task> current_;  // while running_
  std::shared_ptr<Task> spare_;    // saves an allocation for callers who wait at once
  std::exception_ptr broken_;
  std::thread thread_;  // started when first needed
  uint64_t issued_ = 0;
  bool running_ = false;
  bool background_wanted_ = false;  // what is queued is the thread's
  bool idle_ = false;               // the thread sleeps until it is woken
  bool stop_ = false;
  int waiters_ = 0;
  std::shared_ptr<void> watched_;  // last: ends before what it looks at
};

}  // namespace yoke::comm
