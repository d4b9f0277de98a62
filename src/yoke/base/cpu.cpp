#include "yoke/base/cpu.h"

#include <fstream>

namespace yoke {

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    size_t colon = line.find(": ");
    bool names = line.rfind("model name", 0) == 0 || line.rfind("CPU part", 0) == 0;
    if (colon != std::string::npos && names) return line.substr(colon + 2);
  }
  return "unknown processor";
}

}  // namespace yoke
