// The possible cuts of a network and their costs: the states of the planner.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/plan/pipeline/profile.h"

namespace yoke::plan {

// Boundary b is a set of completed layers, 0 for none, count() for all; a stage [a, b) has the layers in b
// but not in a. Boundaries are sorted by completed time, so that a < b whenever a is a subset of b.
struct Cuts {
  std::vector<double> forward;      // seconds of completed layers; these four increase with the set
  std::vector<double> seconds;      // forward and backward
  std::vector<double> weights;      // bytes
  std::vector<double> activations;  // bytes output by completed layers
  std::vector<double> crossing;     // bytes read by later layers; 0 at both ends
  std::vector<std::vector<uint64_t>> part_of;  // bit b of row a: a is a subset of b. Empty: whenever a < b
  std::vector<std::vector<int>> layers;        // antichain only: completed layers, sorted
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
  // Layers of the stage [a, b), by their index in the profile.
  std::vector<int> layers_of(int a, int b) const;
};

// One cut after every layer, in profile order. Crossing bytes are those read by later layers, each output
// once.
Cuts prefix_cuts(const Profile& profile);

// The states of PipeDream's released optimizer: sets closed under predecessors, grown from the first source
// by one layer with all its ancestors; crossing bytes are over-counted as there. Throws ConfigError if there
// are more than `most`.
Cuts antichain_cuts(const Profile& profile, int most = 5000);

}  // namespace yoke::plan
