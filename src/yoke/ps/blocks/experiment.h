// Sparse logistic regression with workers and servers as threads of this process: the experiment of the
// parameter server's paper, on one machine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "yoke/ps/blocks/solver.h"

namespace yoke::ps::blocks {

struct Experiment {
  std::vector<LocalProblem*> problems;  // one for each worker, of the same keys and blocks; begun anew
  Key keys = 1;
  int servers = 1;
  SolverOptions solver;    // `overlap` is measured
  std::vector<bool> slow;  // workers that solver.slowdown applies to; empty: all
  bool key_cache = true;
  bool compress = true;
  std::string backend = "shm";
  // Called by worker 0 after each pass; may be empty.
  std::function<void(int64_t pass)> progress{};
};

struct Outcome {
  struct Point {
    double seconds = 0;
    double objective = 0;
  };
  std::vector<Point> curve;  // after each pass; as the workers know the weights then, exact at the end
  std::vector<SolverReport> workers;
  sparse::Traffic traffic;      // of all workers
  std::vector<Key> support;     // keys whose weight is not 0, ascending
  std::vector<double> weights;  // likewise
  double objective = 0;         // at the end
  double seconds = 0;
};

// Throws ConfigError, CommError.
Outcome run(const Experiment& experiment);

}  // namespace yoke::ps::blocks
