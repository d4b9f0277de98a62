// Arguments of `yoke plan`, `yoke simulate` and `yoke partition`.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace yoke::cli {

struct PlanArguments {
  std::string profile;
  int64_t devices = 0;
  std::string bandwidth;
  std::string levels;
  std::string cluster;
  std::string cost_model = "ring";
  std::string memory;           // per device: "12GB", or "12GB,12GB,6GB"
  std::string speeds;           // per device: "1,1,0.5"; empty: all equal
  std::string activation_cost;  // on, off; empty: as in the cost model
  std::string states = "prefix";
  std::string output;
  double batch_factor = 1;
  bool straight = false;
  bool fewer_devices = false;
  bool explain = false;
};

struct SimulateArguments {
  std::string schedule;
  std::string plan;
  std::string cluster;
  int64_t stages = 0;
  int64_t microbatches = 0;
  int64_t minibatches = 0;
  std::string forward;
  std::string backward;
  std::string weight_backward;
  int64_t chunks = 0;  // interleaved: 0: two
  std::string replicas;
  std::string transfer;
  bool vertical_sync = false;
  std::string svg;
  std::string trace;
};

struct PartitionArguments {
  std::string graph;
  int64_t parts = 0;
  double balance = 1.1;
  std::string weight = "seconds";
  uint64_t seed = 1;
};

// The options of the three commands.
void describe(CLI::App& command, PlanArguments& arguments);
void describe(CLI::App& command, SimulateArguments& arguments);
void describe(CLI::App& command, PartitionArguments& arguments);

}  // namespace yoke::cli
