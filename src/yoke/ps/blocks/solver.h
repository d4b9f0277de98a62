// Delayed block proximal gradient (Li et al., NIPS 2014): L1-regularised logistic regression over parameter
// servers.
//
// In each pass the workers visit all blocks of features in a random order that they share. A visit is one
// task: derivatives of the block go to the servers as a round; they sum them, take a proximal step on each
// weight, and the worker fetches the block's new weights. With a delay, up to delay + 1 visits overlap.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "yoke/plan/policies/delay_law.h"
#include "yoke/ps/blocks/local_problem.h"
#include "yoke/ps/sparse/client.h"
#include "yoke/ps/sparse/rules.h"

namespace yoke::ps::blocks {

// Sum of the magnitudes of all weights, kept by the rules of servers in this process.
using Magnitude = std::shared_ptr<std::atomic<double>>;

struct SolverOptions {
  double l1 = 1;
  int64_t passes = 10;
  int64_t delay = 0;  // visits that may overlap with one more
  bool kkt = true;    // leave out weights that are 0 and stay so; every eighth pass and the last two send all
  uint64_t seed = 1;  // of the order of blocks
  double overlap = 0;  // LocalProblem::overlap(), of all workers
  // The curvature is multiplied by 1 + damping * delay * overlap. 1 is safe for any data; sparse features
  // that rarely meet need far less.
  double damping = 0.1;
  plan::DelayLaw slowdown{};  // added to the computation of each visit
  double timeout = 300;       // seconds, of a pass
  Magnitude magnitude{};      // recorded with each pass, if the servers are in this process
  std::function<void(int64_t pass)> progress{};  // after each pass; may be empty
};

// The servers' rule for the table of weights (width 1, pushed 2, fp64): with g and u summed over the workers,
//   v = w - g / u,  w = sign(v) max(0, |v| - l1 / u)
std::shared_ptr<const sparse::Rule> proximal_step(double l1, Magnitude magnitude);

struct SolverReport {
  struct Pass {
    double seconds = 0;    // since the start
    double loss = 0;       // of this worker's examples, as it knows the weights
    double magnitude = 0;  // of the weights, SolverOptions::magnitude
  };
  std::vector<Pass> passes;
  double compute_seconds = 0;  // derivatives, margins and the slowdown
  double wait_seconds = 0;     // for servers and other workers
  int64_t keys = 0;            // of all visits
  int64_t keys_left_out = 0;   // by the KKT filter
  int64_t most_in_flight = 0;  // visits
};

// One worker. Returns when all its visits are finished and the problem knows the servers' final weights.
// `table`: of the client, opened with proximal_step(). Throws CommError.
SolverReport solve(sparse::Client& client, int table, LocalProblem& problem, int worker, int workers,
                   const SolverOptions& options);

}  // namespace yoke::ps::blocks
