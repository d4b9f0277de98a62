// Arguments of `yoke ps`.
#pragma once

#include <string>

namespace yoke::cli {

struct PsArguments {
  std::string address;  // the folder of a run
  int server = 0;       // leave
  bool once = false;
  double interval = 1;  // seconds
};

}  // namespace yoke::cli
