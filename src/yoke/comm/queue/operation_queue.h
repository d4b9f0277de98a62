// Runs collectives in the order of issue, one at a time. The head runs on a waiting caller's thread or on the
// queue's own thread, which takes large operations immediately and small ones when their caller polls done()
// or does not wait for them within about 20 ms. Small operations thus avoid a thread switch.
//
// Thread-safe. After an error every later operation fails with the same error.
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

  // `timeout` in seconds, from the start of execution.
  Pending issue(Operation operation, double timeout);
  // Whether anything issued has not ended.
  bool busy();

  // Fails every later operation with `error`, because the ranks are no longer in step.
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
  std::shared_ptr<Task> spare_;    // reused to save an allocation when callers wait immediately
  std::exception_ptr broken_;
  std::thread thread_;  // started when first needed
  uint64_t issued_ = 0;
  bool running_ = false;
  bool background_wanted_ = false;  // the queue's thread runs what is queued
  bool idle_ = false;               // the thread sleeps until it is woken
  bool stop_ = false;
  int waiters_ = 0;
  std::shared_ptr<void> watched_;  // last: unregistered before the members it reads
};

}  // namespace yoke::comm
