// What a worker of parameter servers is told.
#pragma once

#include "yoke/cluster/world.h"
#include "yoke/comm/communicator.h"
#include "yoke/comm/messenger.h"
#include "yoke/optim/options.h"
#include "yoke/plan/policies/rule.h"
#include "yoke/ps/options.h"
#include "yoke/ps/packing.h"
#include "yoke/ps/replica_ranks.h"
#include "yoke/ps/updater.h"

namespace yoke::parallel {

class HostedServer;

struct PsSetup {
  // All must outlive the strategy.
  comm::Messenger* messenger = nullptr;  // on which every worker is one peer (ps/replica_messenger.h)
  cluster::World* job = nullptr;         // null: workers are threads of one process
  HostedServer* server = nullptr;        // that this process hosts besides
  // Where a worker is a replica in parts: its ranks, for nothing but what they tell each other here.
  comm::Communicator* replica = nullptr;
  // Of all workers, each one rank, where they share the statistics of BatchNorm layers: they stop together.
  comm::Communicator* team = nullptr;
  int workers = 1;  // with places for those that join
  int workers_at_start = 1;
  ps::ReplicaRanks ranks{};  // of the job; by default each worker is a rank
  ps::PsOptions ps;
  int places = 0;                       // for servers, if some may join; 0: the set is fixed
  int at_start = 0;                     // as in ps::ServerOptions
  std::vector<std::string> machines{};  // likewise
  ps::SlowdownOptions slowdown;
  plan::PolicyOptions policy;
  int64_t updates = 0;     // where the run ends; told by the first worker
  int64_t accumulate = 1;  // batches of a gradient
  double timeout = 300;
  bool skip_non_finite = false;  // train.non_finite = "skip"
  ps::Packing packing{};         // of pushed gradients: ddp.hook
  double l1 = 0;                 // of proximal gradient
  bool sparse = false;  // rows that a minibatch uses are pushed and pulled alone, if the model has such
};

// The servers' optimizer that equals one of a worker.
inline ps::UpdaterOptions updater_options(const optim::OptimizerOptions& from) {
  ps::UpdaterOptions options;
  options.optimizer = from.optimizer;
  options.momentum = from.momentum;
  options.nesterov = from.nesterov;
  options.weight_decay = from.weight_decay;
  options.beta1 = from.beta1;
  options.beta2 = from.beta2;
  options.eps = optim::effective_eps(from);
  options.beta = from.ftrl_beta;
  options.l1 = from.l1;
  options.l2 = from.l2;
  return options;
}

}  // namespace yoke::parallel
