// The steps of a ring as pictures of the machine that it runs on: which links carry messages, and what each
// device has summed so far.
#pragma once

#include <string>
#include <vector>

#include "yoke/report/topology_svg.h"

namespace yoke::report {

struct RingSteps {
  std::string label;  // for screen readers
  TopologyPicture machine;
  std::vector<int> ranks;   // node of each rank
  std::string worker_kind;  // of those nodes
  struct Step {
    std::string title;
    bool gathers = false;                // parts are passed on; otherwise they are added
    std::vector<int> messages;           // on each link of the machine, in its busier direction
    std::vector<int> arrived;            // at each rank: a part; -1: none
    std::vector<std::vector<int>> sums;  // [rank][part]: number of ranks whose values are in it
  };
  std::vector<Step> steps;
};

// Panels of the steps in reading order. Requires one entry for each rank and each link in every step.
std::string ring_steps_svg(const RingSteps& steps);

}  // namespace yoke::report
