#include "yoke/data/formats/cifar.h"

#include "yoke/base/error.h"

namespace yoke::data {

int64_t check_cifar10(std::string_view bytes, const std::string& file) {
  constexpr auto kRecord = static_cast<size_t>(kCifarRecordBytes);
  const size_t records = bytes.size() / kRecord;
  if (records == 0 || bytes.size() % kRecord != 0) {
    throw ConfigError(
        "{}, byte {}: {} bytes are not whole CIFAR-10 records of {} bytes. Download the file again.", file,
        records * kRecord, bytes.size(), kRecord);
  }
  for (size_t at = 0; at < bytes.size(); at += kRecord) {
    if (const auto label = static_cast<uint8_t>(bytes[at]); label > 9) {
      throw ConfigError("{}, byte {}: expected a label 0..9, found {}. Is it the binary version of CIFAR-10?",
                        file, at, label);
    }
  }
  return static_cast<int64_t>(records);
}

}  // namespace yoke::data
