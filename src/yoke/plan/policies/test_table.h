// For tests of policies: the server's side of the conversation with workers.
#pragma once

#include <map>
#include <vector>

#include "yoke/plan/policies/policy.h"

namespace yoke::plan {

inline PolicyOptions options_of(Rule rule, int workers, int64_t k = 0, int64_t max_delay = 0) {
  return {rule, workers, k, max_delay};
}

// A policy together with what each worker was released with last.
struct Table {
  explicit Table(const PolicyOptions& options) : policy(options) {
    for (int worker = 0; worker < options.workers; ++worker) join(worker);
  }
  const Decision& join(int worker) { return note(policy.joined(worker)); }
  const Decision& leave(int worker) {
    running.erase(worker);
    return note(policy.left(worker));
  }
  // The worker finishes what it computes.
  const Decision& push(int worker) {
    GradientTags tags = running.at(worker);
    running.erase(worker);
    return note(policy.arrived(tags));
  }
  const Decision& note(const Decision& decision) {
    for (const Release& release : decision.releases)
      running[release.worker] = {release.worker, release.version, release.minibatch};
    return decision;
  }
  Policy policy;
  std::map<int, GradientTags> running;
};

inline std::vector<int> released(const Decision& decision) {
  std::vector<int> workers;
  for (const Release& release : decision.releases) workers.push_back(release.worker);
  return workers;
}

inline std::vector<int> cancelled(const Decision& decision) {
  std::vector<int> workers;
  for (const Release& release : decision.releases) {
    if (release.cancels) workers.push_back(release.worker);
  }
  return workers;
}

}  // namespace yoke::plan
