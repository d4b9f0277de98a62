// What a worker of parameter servers is told.
#pragma once

#include "yoke/comm/messenger.h"
#include "yoke/optim/options.h"
#include "yoke/plan/policies/rule.h"
#include "yoke/ps/options.h"
#include "yoke/ps/updater.h"

namespace yoke::parallel {

struct PsSetup {
  comm::Messenger* messenger = nullptr;  // must outlive the strategy
  int workers = 1;
  ps::PsOptions ps;
  ps::SlowdownOptions slowdown;
  plan::PolicyOptions policy;
  int64_t updates = 0;  // where the run ends; told by the first worker
  double timeout = 300;
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
  return options;
}

}  // namespace yoke::parallel
