// Whatever the bytes, check_cifar counts whole records, or throws an Error.
#include "yoke/data/formats/cifar.h"

#include <cstdlib>
#include <initializer_list>

#include "yoke/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const yoke::data::CifarFormat& format : {yoke::data::kCifar10Format, yoke::data::kCifar100Format}) {
    try {
      const int64_t records = yoke::data::check_cifar(bytes, format, "fuzz");
      if (static_cast<size_t>(records) * format.record_bytes() != size) std::abort();
    } catch (const yoke::Error&) {
    }
  }
  return 0;
}
