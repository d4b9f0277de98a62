// The words of `yoke lab stragglers`.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace yoke::cli {

struct LabArguments {
  std::string file;
  std::string policies = "all";
  int64_t workers = 4;
  int64_t servers = 1;
  int64_t k = 0;  // 0: half of the workers
  std::string max_delay = "2";
  std::string delay = "none";
  std::string delay_workers;  // empty: all
  double target_loss = 0;     // 0: what all of them reach
  bool fault_free = false;    // each rule without delays too
  std::string output;
};

// The options of the command, which fill `arguments`.
void add_options(CLI::App& command, LabArguments& arguments);

}  // namespace yoke::cli
