// Who computes, and who sums which share of the vector, from what every peer's links and processor can do.
//
// A step takes the time to compute the batch, by those who compute, and the time to average, which balance.h
// gives for that choice (the strategy of Diskin et al. 2021, section 3.2, for steps in turn; all receive the
// mean, so that all have the state). A peer that does not compute sends no gradient: that pays for a slow
// upload with a slow processor, and for a machine that is better used for summing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/collab/balance.h"

namespace yoke::collab {

// What is decided from the speeds of links and processors.
enum class RolePolicy {
  kAuto,    // who computes, and shares
  kShares,  // shares; all compute
  kEqual,   // nothing
};
const std::vector<std::string>& role_policies();        // "auto", "shares", "equal"
RolePolicy parse_role_policy(const std::string& name);  // Requires one of these.

struct PeerPower {
  Bandwidth upload, download;  // bytes per second; nullopt: unknown, counted as the mean
  double samples_per_s = 0;    // 0: unknown, counted as the mean
  bool accepts = true;         // connections of others
};

struct StepWork {
  double samples = 1;  // of a batch
  double bytes = 1;    // of the vector
};

struct Roles {
  std::vector<bool> computes;
  std::vector<double> shares;  // sum 1
  double compute_seconds = 0, average_seconds = 0;
  double seconds() const { return compute_seconds + average_seconds; }
};

// The roles with this choice of who computes. Requires that somebody does. Throws ConfigError, as
// balance_links().
Roles roles_with(const std::vector<PeerPower>& peers, const StepWork& work,
                 const std::vector<bool>& computes);

// The fastest choice of who computes. Up to 8 peers all choices are tried; of more, those that leave out the
// slow in some respect, add one peer after the other, or differ in one or two peers (beyond 32 only the
// first). All compute as long as no upload or no download is known; as long as no processor is, all but those
// whose uploads would make averaging more than twice as slow, by seconds.
Roles choose_roles(const std::vector<PeerPower>& peers, const StepWork& work);

}  // namespace yoke::collab
