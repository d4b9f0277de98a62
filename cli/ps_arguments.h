// Arguments of `yoke ps`.
#pragma once

#include <string>

#include "yoke/cluster/launcher/joining.h"

namespace yoke::cli {

struct PsArguments {
  cluster::JobQuery job;
  int server = -1;     // leave
  int worker = -1;     // leave, instead of a server
  bool works = false;  // join: as a worker
  std::string config;  // join: file; empty: that of the run
  bool once = false;
  double interval = 1;  // seconds
};

}  // namespace yoke::cli
