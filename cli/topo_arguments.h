// The words of `yoke topo`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yoke::cli {

struct TopoArguments {
  std::string file;
  std::string preset;
  int64_t machines = 1;                 // so many boxes of the preset
  std::string network;                  // rate of a network interface; empty: the preset's own
  std::vector<std::string> ops;         // empty: all
  std::vector<std::string> sizes;       // "64MB"
  std::vector<std::string> algorithms;  // empty: all
};

}  // namespace yoke::cli
