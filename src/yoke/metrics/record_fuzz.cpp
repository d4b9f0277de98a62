// Any bytes are either a record that survives being written and read again, or a ConfigError.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "yoke/base/error.h"
#include "yoke/metrics/record.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const yoke::metrics::Record record =
        yoke::metrics::parse_record(std::string(reinterpret_cast<const char*>(data), size));
    const std::string line = yoke::metrics::to_json(record).dump();
    if (yoke::metrics::to_json(yoke::metrics::parse_record(line)).dump() != line) std::abort();
  } catch (const yoke::ConfigError&) {
  }
  return 0;
}
