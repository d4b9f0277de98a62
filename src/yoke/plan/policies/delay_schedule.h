// Maximum delay of bounded_delay and ssp over a run: "0, 500:4, 2000:inf" means no delay at first, 4 rounds
// from update 500 on, and no bound from update 2000 on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yoke::plan {

struct DelayStep {
  int64_t from = 0;  // update
  int64_t max_delay = 0;
  bool operator==(const DelayStep&) const = default;
};

// At least one step; the first starts at 0, later ones at increasing updates. Throws ConfigError naming
// `what` (the option) and the invalid part.
std::vector<DelayStep> parse_delay_schedule(const std::string& what, const std::string& text);

// The value after `version` updates. Requires a schedule from parse_delay_schedule().
int64_t delay_at(const std::vector<DelayStep>& schedule, int64_t version);

}  // namespace yoke::plan
