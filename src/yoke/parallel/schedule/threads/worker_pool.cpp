#include "yoke/parallel/schedule/threads/worker_pool.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>

#include "yoke/base/error.h"
#include "yoke/compute/recompute_state.h"
#include "yoke/compute/search_room.h"

namespace yoke::parallel {

WorkerPool::WorkerPool(int workers, int threads_each) : errors_(static_cast<size_t>(workers)) {
  if (workers > 1) compute::leave_searches_unbounded();
  int before = at::get_num_threads();
  for (int i = 0; i < workers; ++i) threads_.emplace_back([this, i, threads_each] { work(i, threads_each); });
  run(workers, [](int) {});     // all have set their number of threads,
  at::set_num_threads(before);  // which also became the default for future threads
}

WorkerPool::~WorkerPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::work(int worker, int threads) {
  at::set_num_threads(threads);
  int64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stop_ || round_ != seen; });
    if (stop_) return;
    seen = round_;
    if (worker >= count_) continue;
    const std::function<void(int)>& body = *body_;
    lock.unlock();
    std::exception_ptr error;
    try {
      body(worker);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    errors_[static_cast<size_t>(worker)] = error;
    if (--unfinished_ == 0) finished_.notify_all();
  }
}

std::vector<std::exception_ptr> WorkerPool::run(int count, const std::function<void(int)>& body) {
  YOKE_CHECK(count <= size(), "{} pieces of work for {} workers", count, size());
  at::ThreadLocalState state;
  AutocastState autocast;
  std::function<void(int)> as_here = [&](int worker) {
    at::ThreadLocalStateGuard guard(state);
    AutocastStateGuard casts(autocast);
    body(worker);
  };
  std::unique_lock lock(mutex_);
  body_ = &as_here;
  count_ = unfinished_ = count;
  std::fill(errors_.begin(), errors_.end(), nullptr);
  ++round_;
  wake_.notify_all();
  finished_.wait(lock, [&] { return unfinished_ == 0; });
  return errors_;
}

}  // namespace yoke::parallel
