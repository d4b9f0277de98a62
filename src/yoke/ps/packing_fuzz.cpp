// Any bytes as a gradient in fewer bytes: they are refused, or fill the range.
#include <cstring>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/ps/packing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yoke;
  using namespace yoke::ps;
  if (size < 2) return 0;
  const auto encoding = static_cast<Encoding>(data[0] % 8);
  const DataType type = data[0] >= 128 ? DataType::kFloat64 : DataType::kFloat32;
  std::vector<std::byte> values(data[1] * size_of(type)), bytes(size - 2);
  if (!bytes.empty()) std::memcpy(bytes.data(), data + 2, bytes.size());
  try {
    unpack(encoding, bytes, type, values);
  } catch (const CommError&) {
  }
  return 0;
}
