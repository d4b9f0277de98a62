// Arguments of `yoke bench ps`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace yoke::cli {

struct BenchPsArguments {
  std::string policy;
  std::optional<int64_t> workers;
  int64_t k = 0;  // 0: not given
  std::string max_delay = "0";
  std::string delay = "none";
  std::string delay_workers;  // empty: all
  std::string link_delay = "none";
  std::string bandwidth;  // virtual clock; empty: transfers take no time
  std::string compute;    // empty: 1ms, or 0 if the delay is a time
  std::optional<int64_t> updates;
  std::string clock = "real";
  uint64_t seed = 1;
  std::string objective;  // empty: none
  double noise = 1;
  double lr = 0.1;
  std::string bytes = "1MB";
  int64_t servers = 1;
  std::string backend = "shm";
  bool throughput = false;
  int64_t in_flight = 0;  // 0: chosen
  double seconds = 1;
};

// Adds the options of the command, which fill `arguments`.
void add_options(CLI::App& command, BenchPsArguments& arguments);

}  // namespace yoke::cli
