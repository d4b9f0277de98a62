// Who runs an operation: the head of the queue is run by a thread inside wait(), or by the queue's own
// thread. `running_` makes it one at a time, so operations execute in the order of issue whichever thread
// takes them. Every sleep has a timeout, so that a missed notification costs latency, never a hang.
#include "yoke/comm/queue/operation_queue.h"

#include <utility>

#include "yoke/base/clock.h"
#include "yoke/base/fault.h"
#include "yoke/comm/queue/failure_text.h"

namespace yoke::comm {
namespace {

// Operations below this size take less time than waking a thread: they run on the thread that waits for them.
constexpr size_t kBackgroundBytes = 32 << 10;
// A deferred operation is started after one to two of these even if nobody waits for it: its caller may be
// blocked on a rank that waits for this operation.
constexpr std::chrono::milliseconds kNap{10};
constexpr uint64_t kNone = UINT64_MAX;  // no ticket

}  // namespace

struct OperationQueue::Task : Pending::State {
  explicit Task(OperationQueue& owner) : queue(owner) {}
  void wait() override { queue.wait(*this); }
  bool done() override {
    std::lock_guard lock(queue.mutex_);
    if (!ended) queue.begin_in_background();
    return ended;
  }
  Pending::Timing timing() override {
    std::lock_guard lock(queue.mutex_);
    return times;
  }

  OperationQueue& queue;
  Operation operation;
  double timeout = 0;
  uint64_t ticket = 0;
  bool ended = false;
  Pending::Timing times;
  std::exception_ptr error;
};

OperationQueue::OperationQueue(Backend& backend, const GroupInfo& group, const JobLink& job)
    : backend_(backend), group_(group), job_(job) {
  if (job_.watch && group_.size > 1)
    watched_ = job_.watch([this](std::vector<cluster::Wait>& waits) { add_long_wait(waits); });
}

OperationQueue::~OperationQueue() {
  std::unique_lock lock(mutex_);
  while (!tasks_.empty() || running_) {
    if (!running_)
      run_head(lock);
    else
      ended_.wait_for(lock, std::chrono::milliseconds(20));
  }
  stop_ = true;
  lock.unlock();
  work_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool OperationQueue::busy() {
  std::lock_guard lock(mutex_);
  return !tasks_.empty() || running_;
}

Pending OperationQueue::issue(Operation operation, double timeout) {
  size_t bytes = std::max(operation.input.bytes(), operation.output.bytes());
  std::unique_lock lock(mutex_);
  std::shared_ptr<Task> task = spare_ && spare_.use_count() == 1 ? spare_ : std::make_shared<Task>(*this);
  spare_ = task;
  ++issued_;
  task->operation = std::move(operation);
  task->timeout = timeout;
  task->ended = false;
  task->times = {};
  task->error = nullptr;
  task->ticket = job_.recorder->issued(group_.name.c_str(), task->operation.descriptor, bytes);
  tasks_.push_back(task);
  if (!thread_.joinable()) thread_ = std::thread([this] { background(); });
  bool wake = std::exchange(idle_, false);
  if (bytes >= kBackgroundBytes) wake |= !std::exchange(background_wanted_, true);
  lock.unlock();
  if (wake) work_.notify_one();
  return Pending(std::move(task));
}

// Requires: mutex_ is held. The queue's thread takes over what is queued.
void OperationQueue::begin_in_background() {
  if (tasks_.empty() || std::exchange(background_wanted_, true)) return;
  idle_ = false;
  work_.notify_one();
}

void OperationQueue::wait(Task& task) {
  std::unique_lock lock(mutex_);
  ++waiters_;
  while (!task.ended) {
    if (!running_)
      run_head(lock);
    else
      ended_.wait_for(lock, std::chrono::milliseconds(20));
  }
  --waiters_;
  if (task.error) std::rethrow_exception(task.error);
}

void OperationQueue::run_head(std::unique_lock<std::mutex>& lock) {
  std::shared_ptr<Task> task = std::move(tasks_.front());
  tasks_.pop_front();
  if (tasks_.empty()) background_wanted_ = false;
  running_ = true;
  current_ = task;
  std::exception_ptr error = broken_;
  task->times.started = now_seconds();
  lock.unlock();
  if (!error) {
    Deadline deadline = Deadline::after(task->timeout);
    try {
      if (job_.entered) job_.entered(static_cast<int64_t>(task->operation.descriptor.number));
      job_.recorder->started(task->ticket);
      fault::at(fault::Point::kCollectiveBegin);
      backend_.run(task->operation, deadline);
      job_.recorder->finished(task->ticket);
    } catch (...) {
      job_.recorder->failed(task->ticket);
      error = explain_failure(std::current_exception(), task->operation.descriptor, group_, backend_.name(),
                              job_, deadline);
    }
  } else {
    job_.recorder->failed(task->ticket);
  }
  lock.lock();
  running_ = false;
  current_.reset();
  if (error && !broken_) broken_ = error;
  task->error = error;
  task->times.ended = now_seconds();
  task->ended = true;
  if (waiters_ > 0) ended_.notify_all();
}

void OperationQueue::background() {
  std::unique_lock lock(mutex_);
  uint64_t head = kNone;  // ticket of the head at the last check
  while (!stop_) {
    if (tasks_.empty()) {
      head = sleep(lock);
    } else if (background_wanted_ && running_) {
      // A waiting caller runs the head and notifies when done.
      ++waiters_;
      ended_.wait_for(lock, std::chrono::milliseconds(20));
      --waiters_;
    } else if (background_wanted_) {
      run_head(lock);
    } else if (!running_ && std::exchange(head, tasks_.front()->ticket) == tasks_.front()->ticket) {
      background_wanted_ = true;
    } else {
      work_.wait_for(lock, kNap);
    }
  }
}

// While operations keep coming it naps, which costs their callers no wake-up; after a nap without any it
// sleeps until it is notified.
uint64_t OperationQueue::sleep(std::unique_lock<std::mutex>& lock) {
  const uint64_t before = issued_;
  work_.wait_for(lock, kNap);
  if (issued_ != before || stop_) return kNone;
  idle_ = true;
  while (idle_ && tasks_.empty() && !stop_) work_.wait_for(lock, std::chrono::seconds(1));
  idle_ = false;
  return kNone;
}

void OperationQueue::add_long_wait(std::vector<cluster::Wait>& waits) {
  std::lock_guard lock(mutex_);
  if (!current_) return;
  double seconds = now_seconds() - current_->times.started;
  if (seconds < cluster::Session::kLongWait) return;
  waits.push_back(wait_of(current_->operation.descriptor, group_));
  waits.back().seconds = seconds;
}

void OperationQueue::break_with(std::exception_ptr error) {
  std::lock_guard lock(mutex_);
  if (!broken_) broken_ = std::move(error);
}

}  // namespace yoke::comm
