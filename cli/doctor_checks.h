// The checks of `yoke doctor` that do not need LibTorch. Every value is measured or read from the system now.
#pragma once

#include <string>
#include <vector>

namespace yoke::cli {

struct Check {
  std::string name;
  bool ok = true;
  std::string value;
  std::string hint{};   // how to get what is missing
  bool absent = false;  // missing, but not a problem: a machine without a GPU is fine
};

// CPU, memory, huge pages, shared memory, limits, clock and disk.
std::vector<Check> machine_checks();

// Every backend of this build: an exchange between two ranks if that needs nothing else, and the modules with
// their versions.
std::vector<Check> backend_checks();

// Lines of 80 columns.
std::string to_text(const std::vector<Check>& checks);

}  // namespace yoke::cli
