#include "yoke/base/cpu.h"

#include <fstream>
#include <sstream>

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

bool cpu_multiplies_bf16() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("flags", 0) != 0 && line.rfind("Features", 0) != 0) continue;
    std::istringstream words(line);
    for (std::string word; words >> word;)
      if (word == "avx512_bf16" || word == "amx_bf16" || word == "bf16" || word == "svebf16") return true;
    return false;
  }
  return true;  // nothing is known
}

}  // namespace yoke
