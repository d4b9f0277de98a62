// Whatever the bytes, index_tar lists files within the archive, or throws an Error.
#include "yoke/data/formats/images/tar.h"

#include <cstdlib>

#include "yoke/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    for (const yoke::data::TarEntry& entry : yoke::data::index_tar(bytes, "fuzz")) {
      const bool inside = entry.offset <= size && entry.size <= size - entry.offset;
      if (!inside || entry.name.empty() || entry.name[0] == '/') std::abort();
    }
  } catch (const yoke::Error&) {
  }
  return 0;
}
