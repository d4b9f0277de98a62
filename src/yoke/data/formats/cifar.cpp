#include "yoke/data/formats/cifar.h"

#include "yoke/base/error.h"

namespace yoke::data {
namespace {

void check_label(std::string_view bytes, size_t at, int limit, const CifarFormat& format,
                 const std::string& file) {
  if (const auto label = static_cast<uint8_t>(bytes[at]); label >= limit)
    throw ConfigError("{}, byte {}: expected a label 0..{}, found {}. Is it the binary version of {}?", file,
                      at, limit - 1, label, format.name);
}

}  // namespace

int64_t check_cifar(std::string_view bytes, const CifarFormat& format, const std::string& file) {
  const size_t record = format.record_bytes(), records = bytes.size() / record;
  if (records == 0 || bytes.size() % record != 0)
    throw ConfigError("{}, byte {}: {} bytes are not whole {} records of {} bytes. Download the file again.",
                      file, records * record, bytes.size(), format.name, record);
  for (size_t at = 0; at < bytes.size(); at += record) {
    if (format.superclasses > 0) check_label(bytes, at, format.superclasses, format, file);
    check_label(bytes, at + format.class_at(), format.classes, format, file);
  }
  return static_cast<int64_t>(records);
}

}  // namespace yoke::data
