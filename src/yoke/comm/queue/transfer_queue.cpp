#include "yoke/comm/queue/transfer_queue.h"

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
};

TransferQueue::TransferQueue(Backend& backend, const GroupInfo& group, const JobLink& job)
    : backend_(backend), group_(group), job_(job) {}

TransferQueue::~TransferQueue() {
  std::unique_lock lock(mutex_);
  while (!lines_.empty()) ended_.wait_for(lock, std::chrono::milliseconds(20));
  stop_ = true;
  lock.unlock();
  work_.notify_all();
  if (thread_.joinable()) thread_.join();
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
    // The ranks are no longer in step: nothing that is under way can be trusted to arrive.
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
                                task->deadline));
      return true;
    }
  }
  return moved;
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
    // Set before the lock goes: an issue() from now on wakes the backend's wait.
    blocked_ = true;
    lock.unlock();
    if (!advance_all(heads)) {
      waiting.clear();
      for (const auto& task : heads) waiting.push_back(&task->transfer);
      try {
        backend_.wait_for(waiting, Deadline::after(0.02));
      } catch (...) {
        end(heads.front(), explain_failure(std::current_exception(), heads.front()->transfer.descriptor,
                                           group_, backend_.name(), job_, heads.front()->deadline));
      }
    }
    lock.lock();
    blocked_ = false;
  }
}

}  // namespace yoke::comm
