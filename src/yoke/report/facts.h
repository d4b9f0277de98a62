// The key figures of a report.
#pragma once

#include <string>
#include <vector>

#include "yoke/report/run_folder.h"

namespace yoke::report {

struct Fact {
  std::string label;   // "Final loss"
  std::string value;   // "0.3127"
  std::string detail;  // "test 0.3310"; may be empty
};

// From the summary; without one, from the last records, and the labels then say "so far".
std::vector<Fact> facts_of(const RunFolder& run);

// "lenet on fashion_mnist"; the folder's name if neither summary nor configuration has it.
std::string name_of(const RunFolder& run);

}  // namespace yoke::report
