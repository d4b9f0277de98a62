// Runs sends and receives, independent of the collectives, on a thread of its own: in order of issue for each
// (peer, tag, direction), concurrently otherwise. Thread-safe. After an error every later transfer fails with
// it.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "yoke/comm/queue/queued_communicator.h"

namespace yoke::comm {

class TransferQueue {
 public:
  TransferQueue(Backend& backend, const GroupInfo& group, const JobLink& job);
  ~TransferQueue();  // waits until everything issued has ended (each has its deadline)

  // `timeout` in seconds, from now.
  Pending issue(Transfer transfer, double timeout);
  // Whether anything issued has not ended.
  bool busy();

 private:
  struct Task;
  using Key = std::tuple<int, int, bool>;  // peer, tag, is_send
  void background();
  bool advance_all(const std::vector<std::shared_ptr<Task>>& heads);
  void end(const std::shared_ptr<Task>& task, std::exception_ptr error);
  void wait(Task& task);
  void note_idle(Task& task, bool moved);
  void add_long_waits(std::vector<cluster::Wait>& waits);

  Backend& backend_;
  const GroupInfo& group_;
  const JobLink& job_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable ended_;
  std::map<Key, std::deque<std::shared_ptr<Task>>> lines_;
  std::map<Key, uint64_t> numbers_;
  std::exception_ptr broken_;
  std::thread thread_;
  bool stop_ = false;
  bool blocked_ = false;           // the thread is inside wait_for()
  std::shared_ptr<void> watched_;  // last: unregistered before the members it reads
};

}  // namespace yoke::comm
