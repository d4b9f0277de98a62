// The rules of parameter servers on the virtual clock: noisy gradients of F(w) = |w|^2 / 2, delays of a law.
#pragma once

#include "cli/lab.h"

namespace yoke::cli {

struct VirtualRules {
  std::vector<std::string> rules;
  int workers = 8;
  int64_t k = 4;  // of the timelines
  int64_t max_delay = 2;
  std::string delay = "exp:10ms";
  std::string delay_workers;
};

// Adds figures and tables to the page: what every worker does when, the error against time for every K, and
// the error floor and the time of an update against K, beside theory. Gives one row per rule and K.
nlohmann::json compare_virtual_rules(Lab& lab, const VirtualRules& setting);
size_t virtual_parts(const VirtualRules& setting);

}  // namespace yoke::cli
