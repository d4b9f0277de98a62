#include "yoke/comm/run_ranks.h"

#include <unistd.h>

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "yoke/comm/queue/queued_communicator.h"
#include "yoke/comm/shared/local.h"

namespace yoke::comm {

void run_ranks(int size, const std::function<void(Communicator&)>& body, double timeout) {
  auto failure = std::make_shared<cluster::Failure>();
  auto backends = make_local_backends(size, failure);
  std::mutex mutex;
  std::exception_ptr first;
  auto run = [&](int rank, std::unique_ptr<Backend> backend) {
    try {
      GroupInfo group;
      group.rank = rank;
      group.size = size;
      group.timeout = timeout;
      JobLink job;
      job.failure = failure;
      job.recorder = std::make_shared<FlightRecorder>(rank, size, "local", ::getpid());
      auto comm = make_queued(std::move(backend), std::move(group), std::move(job));
      body(*comm);
    } catch (const std::exception& error) {
      {
        std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
      cluster::FailureReport report;
      report.rank = rank;
      report.kind = "exception";
      report.what = fmt::format("rank {} failed: {}", rank, error.what());
      failure->raise(report);
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back(run, rank, std::move(backends[static_cast<size_t>(rank)]));
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace yoke::comm
