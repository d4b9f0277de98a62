// Statistics of a run with parameter servers: collected by the scheduler, printed by bench, train and report.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "yoke/ps/batch_order.h"
#include "yoke/ps/loss_curve.h"
#include "yoke/ps/worker_end.h"

namespace yoke::ps {

// Statistics of one worker; times in seconds.
struct WorkerTime {
  int64_t gradients = 0;  // accepted
  int64_t cancelled = 0;  // cancelled minibatches
  double compute = 0;     // of accepted gradients
  double push = 0;
  double pull = 0;
  double idle = 0;            // waiting for the rule
  double cancelled_time = 0;  // spent on cancelled minibatches
  int64_t rejoined = 0;       // number of times it rejoined
  int64_t id = 0;             // its number
  bool lost = false;          // and has not rejoined
};

// Of one server, from the first request of the training to the end of the updates. The head of a reply.
struct ServerTime {
  double receive = 0;  // seconds while a payload was arriving
  double apply = 0;    // while requests were handled
  double wait = 0;
  int64_t pushed_bytes = 0;
  int64_t pulled_bytes = 0;
  int64_t table_bytes = 0;       // pushed to and pulled from sparse tables
  int64_t replicated_bytes = 0;  // sent to copies
};

// Covers the updates after the warm-up.
struct Accounting {
  // Number of gradients of staleness 0, 1, …; the last of kBins counts all larger ones.
  static constexpr size_t kBins = 4096;

  int64_t updates = 0;
  int64_t gradients = 0;  // consumed by the updates
  int64_t cancelled = 0;
  int64_t pulls = 0;    // of parameters that had changed
  int64_t skipped = 0;  // updates, because a gradient overflowed fp16
  int64_t servers_lost = 0;
  double seconds = 0;
  int64_t staleness_sum = 0;
  std::vector<int64_t> staleness;
  std::vector<WorkerTime> workers;
  std::vector<LossPoint> losses;                // of the whole run; empty if not recorded
  std::optional<BatchOrder::Counts> batches{};  // of the whole run, where they are handed out

  // See ps/archive.h. Without `losses` and `batches`.
  template <class Archive>
  void exchange(Archive& archive) {
    archive(updates);
    archive(gradients);
    archive(cancelled);
    archive(pulls);
    archive(skipped);
    archive(servers_lost);
    archive(seconds);
    archive(staleness_sum);
    archive(staleness);
    archive(workers);
  }

  void count(int64_t one);
  double mean_staleness() const;
  double fresh() const;  // fraction of gradients of staleness 0
  double idle_fraction() const;
  double seconds_per_update() const;
};

nlohmann::json to_json(const Accounting& accounting);
// By the number of the server; those that are lost or were never there are left out.
nlohmann::json to_json(const std::vector<std::optional<ServerTime>>& servers);
// What workers have moved in sparse tables: the sum, and each of those that have told it.
nlohmann::json to_json(const std::vector<WorkerEnd>& ends);

}  // namespace yoke::ps
