// Whatever the bytes, parse_idx gives an array that lies inside them, or an Error.
#include "yoke/data/formats/idx.h"

#include <cstdlib>

#include "yoke/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const size_t dims = size > 3 && data[3] == 3 ? 3 : 1;
    const yoke::data::IdxArray array = yoke::data::parse_idx(bytes, dims, "fuzz");
    uint64_t product = 1;
    for (int64_t d : array.shape) product *= static_cast<uint64_t>(d);
    if (product != array.values.size() || array.values.end() != bytes.end()) std::abort();
  } catch (const yoke::Error&) {
  }
  return 0;
}
