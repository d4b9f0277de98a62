// Whatever the text, parse_libsvm gives well-formed compressed rows, or an Error.
#include "yoke/data/formats/libsvm.h"

#include <cstdlib>

#include "yoke/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    constexpr int64_t kFeatures = 1000;
    const yoke::data::SparseRows rows = yoke::data::parse_libsvm(bytes, kFeatures, "fuzz");
    if (rows.offsets.size() != rows.labels.size() + 1) std::abort();
    if (rows.offsets.back() != static_cast<int64_t>(rows.indices.size())) std::abort();
    if (rows.values.size() != rows.indices.size()) std::abort();
    for (int32_t index : rows.indices) {
      if (index < 0 || index >= kFeatures) std::abort();
    }
  } catch (const yoke::Error&) {
  }
  return 0;
}
