// Sparse logistic regression over parameter servers: runs with several delays, and traffic by filter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "yoke/report/lab_page.h"
#include "yoke/report/points.h"

namespace yoke::report {

struct SparseRun {
  int64_t max_delay = 0;
  std::vector<Point> objective;  // against seconds, after each pass
  struct Worker {
    double compute = 0, wait = 0;  // seconds
  };
  std::vector<Worker> workers;
  double final_objective = 0;
  int64_t nonzeros = 0;
  std::optional<double> seconds_to_target;
  std::optional<int64_t> passes_to_target;
  double idle_fraction() const;  // of the workers' time
};

struct FilteredRun {
  std::string filters;
  double sent = 0, received = 0;  // bytes, of all workers
  double objective = 0;
};

// Objective against time, time of each worker, bytes by filter. Requires runs.
void add_sparse(LabPage& page, double target, const std::vector<SparseRun>& runs,
                const std::vector<FilteredRun>& filtered);

}  // namespace yoke::report
