// An elastic job whose ranks are sessions of this process, for tests.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/cluster/coordinator.h"
#include "yoke/cluster/session.h"

namespace yoke::cluster {

struct ElasticJob {
  explicit ElasticJob(int size, int min = 1, double regroup_timeout = 20) {
    options.address = {"127.0.0.1", 0, ""};
    options.world_size = size;
    options.elastic_min = min;
    options.regroup_timeout = regroup_timeout;
    ticket.job_id = "elastic";
    start_coordinator();
    for (int seat = 0; seat < size; ++seat) failures[seat] = nullptr;
    std::vector<std::jthread> threads;
    std::mutex adding;
    for (int seat = 0; seat < size; ++seat)
      threads.emplace_back([&, seat] {
        auto session = join(seat);
        std::lock_guard lock(adding);
        sessions[seat] = std::move(session);
      });
  }

  void end_coordinator() {
    std::unique_ptr<Coordinator> old;
    std::lock_guard lock(mutex);
    old.swap(coordinator);
  }
  void start_coordinator() {
    std::lock_guard lock(mutex);
    coordinator = std::make_unique<Coordinator>(options, ticket);
  }

  std::unique_ptr<Session> join(int seat, int pid = 1000, const std::function<void()>& prepare = {}) {
    Member self{seat, "node", fmt::format("machine {}", seat), pid + seat, "127.0.0.1:1", ""};
    failures.at(seat) = std::make_shared<Failure>();
    // As if it moved: its end, even a polite one, is a loss.
    Whereabouts where([this](Deadline) {
      std::lock_guard lock(mutex);
      if (!coordinator) throw Error(ExitCode::kRendezvous, "there is no coordinator");
      return coordinator->address();
    });
    return std::make_unique<Session>(where, ticket, self, options.world_size, failures.at(seat),
                                     Deadline::after(20), JobTraits{}, prepare);
  }

  void kill(int seat) {
    FailureReport report;
    report.rank = seat;
    report.pid = 1000 + seat;
    report.kind = "killed";
    report.what = fmt::format("rank {} was killed by signal 9", seat);
    coordinator->report(report);
  }

  // Everybody in `seats` at once; errors by seat.
  std::map<int, std::string> regroup(const std::vector<int>& seats, const std::string& why = "an error",
                                     Deadline patience = Deadline::after(20)) {
    std::map<int, std::string> errors;
    std::mutex adding;
    std::vector<std::jthread> threads;
    for (int seat : seats)
      threads.emplace_back([&, seat] {
        auto failure = std::make_shared<Failure>();
        try {
          sessions.at(seat)->regroup(fmt::format("127.0.0.1:{}", 100 + seat), why, failure,
                                     Deadline::after(20), patience);
          std::lock_guard lock(adding);
          failures[seat] = failure;
        } catch (const CommError& error) {
          std::lock_guard lock(adding);
          errors[seat] = error.what();
        }
      });
    threads.clear();
    return errors;
  }

  std::vector<int> seats_of(int seat) const {
    std::vector<int> seats;
    for (const Member& member : sessions.at(seat)->members()) seats.push_back(member.seat);
    return seats;
  }

  std::mutex mutex;  // guards `coordinator`
  CoordinatorOptions options;
  net::JobTicket ticket;
  std::unique_ptr<Coordinator> coordinator;
  std::map<int, std::shared_ptr<Failure>> failures;
  std::map<int, std::unique_ptr<Session>> sessions;
};

inline void wait_for(const Failure& failure) {
  Deadline deadline = Deadline::after(20);
  while (!failure.set() && !deadline.passed()) std::this_thread::yield();
}

}  // namespace yoke::cluster
