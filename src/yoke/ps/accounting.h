// What a run of servers and workers comes to: counted where it is decided, printed by bench, train and
// report.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "yoke/ps/loss_curve.h"

namespace yoke::ps {

// Seconds of one worker.
struct WorkerTime {
  int64_t gradients = 0;  // that counted
  int64_t cancelled = 0;  // minibatches that were void
  double compute = 0;     // of what counted
  double push = 0;
  double pull = 0;
  double idle = 0;            // waiting for the rule
  double cancelled_time = 0;  // spent on void minibatches
  int64_t rejoined = 0;       // came back so often
  bool lost = false;          // and has not come back
};

// From the end of one update to the end of another.
struct Accounting {
  // Counts of staleness 0, 1, …; the last of kBins counts everything from there on.
  static constexpr size_t kBins = 4096;

  int64_t updates = 0;
  int64_t gradients = 0;  // that the updates consumed
  int64_t cancelled = 0;
  int64_t pulls = 0;  // of parameters that had changed
  double seconds = 0;
  int64_t staleness_sum = 0;
  std::vector<int64_t> staleness;
  std::vector<WorkerTime> workers;
  std::vector<LossPoint> losses;  // of the whole run; empty where nobody keeps them

  void count(int64_t one);
  double mean_staleness() const;
  double fresh() const;  // share of gradients of staleness 0
  double idle_fraction() const;
  double seconds_per_update() const;
};

nlohmann::json to_json(const Accounting& accounting);

}  // namespace yoke::ps
