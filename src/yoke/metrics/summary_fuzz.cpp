// Any bytes are either a summary that can be written again, or a ConfigError.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "yoke/base/error.h"
#include "yoke/metrics/summary.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    auto summary = yoke::metrics::parse_summary(std::string(reinterpret_cast<const char*>(data), size));
    auto handler = nlohmann::json::error_handler_t::replace;
    if (yoke::metrics::to_json(summary).dump(-1, ' ', false, handler).empty()) std::abort();
  } catch (const yoke::ConfigError&) {
  }
  return 0;
}
