// Persistent threads: each replica of a model is always computed by the same one.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace yoke::parallel {

class WorkerPool {
 public:
  // LibTorch's operators use `threads_each` threads inside each worker.
  WorkerPool(int workers, int threads_each);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int size() const { return static_cast<int>(threads_.size()); }

  // Runs body(i) on worker i for i < count and returns when all are done: their exceptions, nullptr if none.
  // Grad mode, autocast and similar state are inherited from the caller. One caller at a time. Requires count
  // <= size().
  std::vector<std::exception_ptr> run(int count, const std::function<void(int)>& body);

 private:
  void work(int worker, int threads);

  std::mutex mutex_;
  std::condition_variable wake_, finished_;
  const std::function<void(int)>* body_ = nullptr;
  int64_t round_ = 0;  // of run()
  int count_ = 0;
  int unfinished_ = 0;
  bool stop_ = false;
  std::vector<std::exception_ptr> errors_;
  std::vector<std::thread> threads_;
};

}  // namespace yoke::parallel
