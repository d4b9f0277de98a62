// Arguments of `yoke ps`.
#pragma once

#include <string>

namespace yoke::cli {

struct PsArguments {
  std::string address;  // the folder of a run
  int server = -1;      // leave
  int worker = -1;      // leave, instead of a server
  bool works = false;   // join: as a worker
  std::string config;   // join: file; empty: that of the run
  bool once = false;
  double interval = 1;  // seconds
};

}  // namespace yoke::cli
