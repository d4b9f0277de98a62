// Any text is either rules within their bounds or a ConfigError; no rule is without a point.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "yoke/base/error.h"
#include "yoke/base/fault.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  try {
    for (const yoke::fault::Rule& rule : yoke::fault::parse(text)) {
      bool bounded = rule.rank >= -1 && rule.attempt >= -1 && rule.step >= -1 && rule.hit >= 0 &&
                     rule.chance >= 0 && rule.chance <= 1 && rule.delay >= 0;
      if (!bounded || text.find("at") == std::string::npos) std::abort();
    }
  } catch (const yoke::ConfigError&) {
  }
  return 0;
}
