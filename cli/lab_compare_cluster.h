// The modelled cluster of `yoke lab compare`: equal links, and one worker that is slower than the others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/run_config.h"
#include "yoke/sim/averaging.h"

namespace yoke::cli {

struct ModelledCluster {
  int workers = 2;
  sim::LinkSpeed link;
  double slow = 1;     // the last worker takes so many times as long
  double compute = 0;  // of a minibatch of one worker, seconds
};

// When and with how much traffic a strategy has processed its samples.
struct Progress {
  std::vector<double> seconds, bytes;  // by round: a minibatch of every worker; bytes sent by a worker
};

// `sent`: bytes that a worker sent in each step of the real run, for strategies that sum in every step.
// `relative`: the time of the slowest worker's minibatch relative to that of a normal one.
Progress summing_in_every_step(const ModelledCluster& cluster, double sent, double relative, int64_t rounds);
Progress averaging_now_and_then(const ModelledCluster& cluster, const RunConfig& config, int64_t rounds);
Progress parameter_servers(const ModelledCluster& cluster, const RunConfig& config, int64_t rounds);
// `sent`: bytes of activations and gradients of a stage in each step.
Progress pipeline_of_stages(const ModelledCluster& cluster, const RunConfig& config, double sent,
                            int64_t rounds);
Progress one_device(const ModelledCluster& cluster, int64_t rounds);

}  // namespace yoke::cli
