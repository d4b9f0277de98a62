// The synchronization rules of a parameter server.
//
// P workers, version j = number of updates so far. An update computes w[j+1] = w[j] - step x weight x (sum of
// the gradients it consumes). All rules are rows of one table (rule.cpp): how many gradients an update
// consumes, whether a worker that has pushed waits for the update, whether the update cancels unfinished
// work, and whether fast workers wait for slow ones.
//
//   sync           the gradients of all workers, all of version j
//   k_sync         the first K workers; the others are cancelled; all continue with j+1
//   k_batch_sync   the first K minibatches of any worker; early workers start another one at version j;
//                  unfinished ones are cancelled; all continue with j+1
//   async          one gradient; only its worker continues with j+1
//   k_async        the first K workers, whatever version they have; only they continue with j+1
//   k_batch_async  K minibatches of any worker; a worker that has pushed continues at once with the current
//                  version
//   bounded_delay  one gradient, as async, but no worker starts its minibatch t before all have pushed
//                  minibatch t - tau - 1: nobody is more than tau rounds ahead. Gradients of workers that
//                  were released together, on the same parameters, are averaged
//   ssp            the same gate on per-worker clocks; every gradient is a full step
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace yoke::plan {

enum class Rule : uint8_t {
  kSync,
  kKSync,
  kKBatchSync,
  kAsync,
  kKAsync,
  kKBatchAsync,
  kBoundedDelay,
  kSsp,
};

const char* to_string(Rule rule);          // "k_batch_sync"
Rule parse_rule(const std::string& name);  // throws ConfigError listing what is accepted
const std::vector<std::string>& rule_names();

// One row of the table.
struct RuleTraits {
  int64_t k;     // gradients per update; kAll: one of every worker; kGiven: PolicyOptions::k
  bool waits;    // a worker that has pushed waits for the update; otherwise it continues immediately
  bool cancels;  // an update cancels unfinished minibatches, and all workers continue with the new version
  bool gated;    // a worker waits while it is more than max_delay ahead of the slowest
  static constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  static constexpr int64_t kGiven = 0;
};

const RuleTraits& traits_of(Rule rule);

struct PolicyOptions {
  static constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();

  Rule rule = Rule::kSync;
  // Nothing is released before this many workers have joined. Later there may be more or fewer.
  int workers = 1;
  // k_ rules: 1..workers for k_sync and k_async, at least 1 for the batch rules. Ignored by others.
  int64_t k = 0;
  // Tau of bounded_delay, slack of ssp; at least 0. Ignored by others.
  int64_t max_delay = 0;
  // Rules with rounds (sync, k_sync): who joins in the middle of a round waits for the next one.
  bool keeps_rounds = false;
};

// Throws ConfigError if `options` are invalid.
void validate(const PolicyOptions& options);

// Reported as "k" in JSON: gradients per update with all workers alive.
int64_t effective_k(const PolicyOptions& options);

// "3", or "inf" for kUnbounded. Throws ConfigError naming `what` (the option) otherwise.
int64_t parse_max_delay(const std::string& what, const std::string& text);

}  // namespace yoke::plan
