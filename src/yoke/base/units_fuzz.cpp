// Any text is either a quantity that is finite and not negative, or none.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "yoke/base/units.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  auto bytes = yoke::parse_bytes(text);
  auto rate = yoke::parse_rate(text);
  auto seconds = yoke::parse_duration(text);
  if (bytes && *bytes < 0) std::abort();
  for (const auto& one : {rate, seconds})
    if (one && (!std::isfinite(*one) || *one < 0)) std::abort();
  return 0;
}
