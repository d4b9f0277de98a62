#include "yoke/comm/run_ranks.h"

#include <unistd.h>

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "yoke/comm/queue/queued_communicator.h"
#include "yoke/comm/shared/local.h"

namespace yoke::comm {
namespace {

constexpr auto kLook = std::chrono::milliseconds(250);

// Plays the coordinator's role: knows which ranks have ended and whether others still wait for them.
class Roll {
 public:
  explicit Roll(std::shared_ptr<cluster::Failure> failure) : failure_(std::move(failure)) {}

  void closed(int rank, uint64_t group, int size, int64_t operations) {
    std::lock_guard lock(mutex_);
    departures_.closed(rank, group, size, operations);
  }

  std::shared_ptr<void> watch(int rank, cluster::Session::WaitSource source) {
    std::lock_guard lock(sources_mutex_);
    int64_t key = next_++;
    sources_[key] = {rank, std::move(source)};
    return {nullptr, [this, key](void*) {
              std::lock_guard again(sources_mutex_);
              sources_.erase(key);
            }};
  }

  void look_at(int rank, const cluster::Wait& wait) {
    std::lock_guard lock(mutex_);
    std::optional<cluster::Departures::Absent> absent = departures_.absent(wait);
    if (!absent || absent->rank == rank) return;
    auto name = [](int one) { return cluster::rank_name(one, ""); };
    failure_->raise(early_end(*absent, name(absent->rank), wait, name(rank)));
  }

  void left(int rank) {
    {
      std::lock_guard lock(mutex_);
      departures_.left(rank);
      ++left_;
    }
    changed_.notify_all();
  }

  // Returns once `size` ranks have ended; meanwhile fails operations that wait for a rank that ended early.
  void stay(int size) {
    std::unique_lock lock(mutex_);
    while (left_ < size) {
      changed_.wait_for(lock, kLook);
      if (left_ == 0 || left_ == size) continue;
      lock.unlock();
      look_at_all();
      lock.lock();
    }
  }

 private:
  void look_at_all() {
    std::vector<std::pair<int, cluster::Wait>> found;
    {
      std::lock_guard lock(sources_mutex_);
      for (const auto& [key, one] : sources_) {
        std::vector<cluster::Wait> waits;
        one.second(waits);
        for (cluster::Wait& wait : waits) found.emplace_back(one.first, std::move(wait));
      }
    }
    for (const auto& [rank, wait] : found) look_at(rank, wait);
  }

  std::shared_ptr<cluster::Failure> failure_;
  std::mutex mutex_;
  std::condition_variable changed_;
  cluster::Departures departures_;
  int left_ = 0;
  std::mutex sources_mutex_;  // never locked while mutex_ is held: sources lock their queues
  std::map<int64_t, std::pair<int, cluster::Session::WaitSource>> sources_;
  int64_t next_ = 0;
};

JobLink link_to(Roll& roll, const std::shared_ptr<cluster::Failure>& failure, int rank, int size) {
  JobLink job;
  job.failure = failure;
  job.recorder = std::make_shared<FlightRecorder>(rank, size, "local", ::getpid());
  job.watch = [&roll, rank](cluster::Session::WaitSource source) {
    return roll.watch(rank, std::move(source));
  };
  job.look_at = [&roll, rank](const cluster::Wait& wait) { roll.look_at(rank, wait); };
  job.closed = [&roll, rank](uint64_t group, int of, int64_t operations) {
    roll.closed(rank, group, of, operations);
  };
  return job;
}

}  // namespace

void run_ranks(int size, const std::function<void(Communicator&)>& body, double timeout) {
  auto failure = std::make_shared<cluster::Failure>();
  auto backends = make_local_backends(size, failure);
  Roll roll(failure);
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  auto run = [&](int rank, std::unique_ptr<Backend> backend) {
    try {
      GroupInfo group;
      group.rank = rank;
      group.size = size;
      group.timeout = timeout;
      group.ranks.resize(static_cast<size_t>(size));
      std::iota(group.ranks.begin(), group.ranks.end(), 0);
      auto comm = make_queued(std::move(backend), std::move(group), link_to(roll, failure, rank, size));
      body(*comm);
    } catch (const std::exception& error) {
      {
        std::lock_guard lock(mutex);
        errors[static_cast<size_t>(rank)] = std::current_exception();
        if (!first) first = std::current_exception();
      }
      cluster::FailureReport report;
      report.rank = rank;
      report.kind = "exception";
      report.what = fmt::format("rank {} failed: {}", rank, error.what());
      failure->raise(report);
    }
    roll.left(rank);
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back(run, rank, std::move(backends[static_cast<size_t>(rank)]));
  roll.stay(size);
  for (std::thread& thread : threads) thread.join();
  if (!first) return;
  // Rethrow the culprit's exception, even if others failed before its stack was unwound.
  auto culprit = static_cast<size_t>(failure->report().rank);
  std::rethrow_exception(culprit < errors.size() && errors[culprit] ? errors[culprit] : first);
}

}  // namespace yoke::comm
