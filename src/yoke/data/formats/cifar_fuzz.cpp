// Whatever the bytes, check_cifar10 counts whole records, or throws an Error.
#include "yoke/data/formats/cifar.h"

#include <cstdlib>

#include "yoke/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const int64_t records = yoke::data::check_cifar10(bytes, "fuzz");
    if (static_cast<size_t>(records * yoke::data::kCifarRecordBytes) != size) std::abort();
  } catch (const yoke::Error&) {
  }
  return 0;
}
