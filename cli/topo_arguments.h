// Arguments of `yoke topo`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yoke::cli {

struct TopoArguments {
  std::string file;
  std::string preset;
  std::string mesh;                     // show the coordinates of ranks
  int64_t machines = 1;                 // number of machines of the preset
  std::string network;                  // bandwidth of a network interface; empty: that of the preset
  std::vector<std::string> ops;         // empty: all
  std::vector<std::string> sizes;       // "64MB"
  std::vector<std::string> algorithms;  // empty: all
};

}  // namespace yoke::cli
