// Any bytes as a safetensors file: an error or a header whose every tensor lies inside the file.
#include <cstdlib>

#include "yoke/base/error.h"
#include "yoke/checkpoint/format/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yoke::checkpoint::format;
  try {
    auto header = parse_header({reinterpret_cast<const char*>(data), size}, size, "fuzz");
    uint64_t sum = 0;
    for (const TensorEntry& t : header.tensors) {
      if (t.end < t.begin || header.data_offset + t.end > size) std::abort();
      sum += t.end - t.begin;
    }
    if (header.data_offset + sum != size) std::abort();
  } catch (const yoke::ConfigError&) {
  }
  return 0;
}
