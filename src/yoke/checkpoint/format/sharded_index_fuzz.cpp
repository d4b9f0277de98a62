// Any bytes as model.safetensors.index.json: an error, or names that stay inside the folder.
#include <cstdlib>

#include "yoke/base/error.h"
#include "yoke/checkpoint/format/sharded_index.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yoke::checkpoint::format;
  try {
    auto index = parse_sharded_index({reinterpret_cast<const char*>(data), size}, "fuzz");
    for (const std::string& file : index.files()) {
      if (!is_plain_file_name(file)) std::abort();
    }
  } catch (const yoke::ConfigError&) {
  }
  return 0;
}
