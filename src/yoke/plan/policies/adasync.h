// AdaSync: a parameter server that waits for few gradients while the loss is high, and for more as it falls.
//
// Minimises the error bound at a given time over K (journal version of Dutta et al. 2018):
//   batch rules, time per update K E[X]/P:              K = K0 sqrt(F0/F)
//   k_sync, k_async, about ln(P/(P-K))/mu: K^2/(P-K) = K0^2/(P-K0) x F0/F, its positive root
#pragma once

#include <cstdint>

#include "yoke/plan/policies/rule.h"

namespace yoke::plan {

// Before rounding. F0, F: initial and current training loss, > 0. Requires a rule with its own K.
double adasync_k(Rule rule, int workers, double k0, double loss0, double loss);

// Rounded to an integer and clamped to k0..workers.
int64_t adasync_whole_k(Rule rule, int workers, int64_t k0, double loss0, double loss);

}  // namespace yoke::plan
