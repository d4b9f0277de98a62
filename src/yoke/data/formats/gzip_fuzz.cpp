// Whatever the bytes, unpack_gzip gives at most what it may, or an Error.
#include "yoke/data/formats/gzip.h"

#include <cstdlib>

#include "yoke/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    constexpr int64_t kLimit = 1 << 20;
    if (yoke::data::unpack_gzip(bytes, "fuzz", kLimit).size() > kLimit) std::abort();
  } catch (const yoke::Error&) {
  }
  return 0;
}
