// One thread advances the oldest transfer of every (peer, tag, direction). All of them progress together:
// waiting for one could deadlock, if its peer waits for another one of ours. Any error fails all transfers,
// because the streams of both sides no longer match.
#include "yoke/comm/queue/transfer_queue.h"

#include <atomic>

#include "yoke/base/clock.h"
#include "yoke/comm/queue/failure_text.h"

namespace yoke::comm {

struct TransferQueue::Task : Pending::State {
  Task(TransferQueue& owner, const Transfer& what, double seconds)
      : queue(owner), transfer(what), deadline(Deadline::after(seconds)) {}
  void wait() override { queue.wait(*this); }
  bool done() override {
    std::lock_guard lock(queue.mutex_);
    return ended;
  }

  TransferQueue& queue;
  Transfer transfer;
  Deadline deadline;
  uint64_t ticket = 0;
  bool ended = false;
  std::exception_ptr error;
  double idle_since = 0;            // first check without progress; used by the thread only
  std::atomic<double> idle_for{0};  // seconds, as of the last check
};

TransferQueue::TransferQueue(Backend& backend, const GroupInfo& group, const JobLink& job)
    : backend_(backend), group_(group), job_(job) {
  if (job_.watch && group_.size > 1)
    watched_ = job_.watch([this](std::vector<cluster::Wait>& waits) { add_long_waits(waits); });
}

TransferQueue::~TransferQueue() {
  std::unique_lock lock(mutex_);
  while (!lines_.empty()) ended_.wait_for(lock, std::chrono::milliseconds(20));
  stop_ = true;
  lock.unlock();
  work_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool TransferQueue::busy() {
  std::lock_guard lock(mutex_);
  return !lines_.empty();
}

Pending TransferQueue::issue(Transfer transfer, double timeout) {
  std::unique_lock lock(mutex_);
  Key key{transfer.peer, transfer.tag, transfer.is_send};
  transfer.descriptor.number = ++numbers_[key];
  transfer.fingerprint = transfer.descriptor.fingerprint();
  auto task = std::make_shared<Task>(*this, transfer, timeout);
  task->ticket = job_.recorder->issued(group_.name.c_str(), transfer.descriptor, transfer.bytes);
  if (broken_) {
    task->ended = true;
    task->error = broken_;
    return Pending(std::move(task));
  }
  lines_[key].push_back(task);
  if (!thread_.joinable()) thread_ = std::thread([this] { background(); });
  bool wake = blocked_;
  lock.unlock();
  if (wake)
    backend_.wake();
  else
    work_.notify_one();
  return Pending(std::move(task));
}

void TransferQueue::wait(Task& task) {
  std::unique_lock lock(mutex_);
  while (!task.ended) ended_.wait_for(lock, std::chrono::milliseconds(100));
  if (task.error) std::rethrow_exception(task.error);
}

void TransferQueue::end(const std::shared_ptr<Task>& task, std::exception_ptr error) {
  std::lock_guard lock(mutex_);
  auto finish = [&](const std::shared_ptr<Task>& one) {
    one->error = error;
    one->ended = true;
  };
  if (error) {
    // The ranks are no longer in step: nothing in flight can be trusted to arrive.
    broken_ = error;
    for (auto& [key, line] : lines_) {
      for (auto& one : line) finish(one);
    }
    lines_.clear();
  } else {
    Key key{task->transfer.peer, task->transfer.tag, task->transfer.is_send};
    auto line = lines_.find(key);
    line->second.pop_front();
    if (line->second.empty()) lines_.erase(line);
    finish(task);
  }
  ended_.notify_all();
}

bool TransferQueue::advance_all(const std::vector<std::shared_ptr<Task>>& heads) {
  bool moved = false;
  for (const auto& task : heads) {
    Transfer& transfer = task->transfer;
    size_t before = transfer.offset;
    try {
      job_.failure->check("point to point");
      bool complete = backend_.advance(transfer);
      note_idle(*task, complete || transfer.offset != before);
      moved = moved || complete || transfer.offset != before;
      if (complete) {
        job_.recorder->finished(task->ticket);
        end(task, nullptr);
      } else if (task->deadline.passed()) {
        throw CommError("no progress with rank {}", transfer.peer);
      }
    } catch (...) {
      job_.recorder->failed(task->ticket);
      end(task, explain_failure(std::current_exception(), transfer.descriptor, group_, backend_.name(), job_,
                                task->deadline, transfer.peer));
      return true;
    }
  }
  return moved;
}

// Measured when the thread checks: time in which the thread itself did not run is not idleness of the peer.
void TransferQueue::note_idle(Task& task, bool moved) {
  double now = now_seconds();
  if (moved || task.idle_since == 0) task.idle_since = now;
  task.idle_for.store(now - task.idle_since, std::memory_order_relaxed);
}

void TransferQueue::add_long_waits(std::vector<cluster::Wait>& waits) {
  std::lock_guard lock(mutex_);
  for (const auto& [key, line] : lines_) {
    const Task& head = *line.front();
    double seconds = head.idle_for.load(std::memory_order_relaxed);
    if (seconds < cluster::Session::kLongWait) continue;
    waits.push_back(wait_of(head.transfer.descriptor, group_, head.transfer.peer));
    waits.back().seconds = seconds;
  }
}

void TransferQueue::background() {
  std::vector<std::shared_ptr<Task>> heads;
  std::vector<Transfer*> waiting;
  std::unique_lock lock(mutex_);
  while (!stop_) {
    heads.clear();
    for (auto& [key, line] : lines_) heads.push_back(line.front());
    if (heads.empty()) {
      work_.wait_for(lock, std::chrono::seconds(1));
      continue;
    }
    // Set before unlocking, so that issue() from now on interrupts wait_for(); otherwise a new transfer could
    // be missed.
    blocked_ = true;
    lock.unlock();
    if (!advance_all(heads)) {
      waiting.clear();
      for (const auto& task : heads) waiting.push_back(&task->transfer);
      try {
        backend_.wait_for(waiting, Deadline::after(0.02));
      } catch (...) {
        end(heads.front(),
            explain_failure(std::current_exception(), heads.front()->transfer.descriptor, group_,
                            backend_.name(), job_, heads.front()->deadline, heads.front()->transfer.peer));
      }
    }
    lock.lock();
    blocked_ = false;
  }
}

}  // namespace yoke::comm
