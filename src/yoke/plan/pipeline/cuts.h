// Where a network may be cut, and what each cut costs: the states of the planner.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/plan/pipeline/profile.h"

namespace yoke::plan {

// Boundary b stands for a set of layers done, 0 for none, count() for all; a stage [a, b) holds what b has
// and a has not. Boundaries are sorted by the time done, so that a < b wherever a is part of b.
struct Cuts {
  std::vector<double> forward;                 // seconds of all layers done; these four rise with the set
  std::vector<double> seconds;                 // forward and backward
  std::vector<double> weights;                 // bytes
  std::vector<double> activations;             // bytes that all layers done put out
  std::vector<double> crossing;                // bytes that later layers read; 0 at both ends
  std::vector<std::vector<uint64_t>> part_of;  // bit b of row a: a is part of b. Empty: always when a < b
  std::vector<std::vector<int>> layers;        // antichain only: layers done, sorted
  std::vector<std::string> names;              // of the layers of the profile

  int count() const { return static_cast<int>(seconds.size()) - 1; }
  bool ordered(int a, int b) const {
    return part_of.empty() ||
           ((part_of[static_cast<size_t>(a)][static_cast<size_t>(b) / 64] >> (b % 64)) & 1) != 0;
  }
  double at(const std::vector<double>& sums, int a, int b) const {
    return sums[static_cast<size_t>(b)] - sums[static_cast<size_t>(a)];
  }
  double seconds_of(int a, int b) const { return at(seconds, a, b); }
  double weights_of(int a, int b) const { return at(weights, a, b); }
  double activations_of(int a, int b) const { return at(activations, a, b); }
  double crossing_at(int b) const { return crossing[static_cast<size_t>(b)]; }
  // Layers of the stage [a, b), by their numbers in the profile.
  std::vector<int> layers_of(int a, int b) const;
};

// After every layer, in the order of the profile. What crosses is what later layers read, each output once.
Cuts prefix_cuts(const Profile& profile);

// The states of PipeDream's released optimizer: sets closed under predecessors, grown from the first source
// by one layer with all its ancestors; what crosses is over-counted as there. Throws ConfigError when there
// are more than `most` of them.
Cuts antichain_cuts(const Profile& profile, int most = 5000);

}  // namespace yoke::plan
