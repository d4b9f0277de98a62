// The rules of when a parameter server updates, and what distinguishes them.
//
// P workers, version j = number of updates so far. An update changes w[j] into w[j+1] = w[j] - step x weight
// x (sum of the gradients it consumes). All rules are points of one table (rule.cpp): how many gradients an
// update waits for, whether a worker that has pushed waits for the update, whether the update cancels what is
// unfinished, and whether the fast must wait for the slow.
//
//   sync           the gradients of all workers, all of version j
//   k_sync         the first K workers; the others are cancelled; all go on with j+1
//   k_batch_sync   the first K minibatches from anyone; who is early starts another one at version j; what is
//                  unfinished is cancelled; all go on with j+1
//   async          one gradient; its worker alone goes on with j+1
//   k_async        the first K workers, whatever version they hold; they alone go on with j+1
//   k_batch_async  K minibatches from anyone; who has pushed goes on at once with whatever is current
//   bounded_delay  one gradient, as async, but nobody starts its minibatch t before everybody has pushed
//                  minibatch t - tau - 1: nobody is more than tau rounds ahead. Gradients of workers that
//                  were released together, on the same parameters, are averaged
//   ssp            the same gate on per-worker clocks; every gradient is a whole step
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
  int64_t k;     // gradients of an update; kAll: of everybody; kGiven: PolicyOptions::k
  bool waits;    // a worker that has pushed waits for the update; otherwise it goes on at once
  bool cancels;  // an update voids the minibatches under way, and everybody goes on with the new version
  bool gated;    // a worker waits while it is more than max_delay ahead of the slowest
  static constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  static constexpr int64_t kGiven = 0;
};

const RuleTraits& traits_of(Rule rule);

struct PolicyOptions {
  static constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();

  Rule rule = Rule::kSync;
  // Nothing is released before so many workers have joined. Later they may be more or fewer.
  int workers = 1;
  // Of the k_ rules: 1..workers for k_sync and k_async, at least 1 for the batch rules. Others ignore it.
  int64_t k = 0;
  // Tau of bounded_delay, slack of ssp; at least 0. Others ignore it.
  int64_t max_delay = 0;
};

// Throws ConfigError when `options` name something that cannot be.
void validate(const PolicyOptions& options);

// What JSON calls "k": the gradients of an update with all workers alive.
int64_t effective_k(const PolicyOptions& options);

// "3", or "inf" for kUnbounded. Throws ConfigError naming `what` (the option) on anything else.
int64_t parse_max_delay(const std::string& what, const std::string& text);

}  // namespace yoke::plan
