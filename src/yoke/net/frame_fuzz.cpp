// Any 64 bytes are either a header that encodes to the same bytes, or refused with a reason.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "yoke/net/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yoke::net;
  std::array<std::byte, kFrameHeaderBytes> bytes{};
  std::memcpy(bytes.data(), data, std::min(size, bytes.size()));
  std::string why;
  std::optional<DecodedHeader> decoded = decode(bytes, why);
  if (!decoded) {
    if (why.empty()) std::abort();
    return 0;
  }
  if (decoded->header.length > max_payload(decoded->header.type)) std::abort();
  if (encode(decoded->header, decoded->job, decoded->payload_crc, decoded->mac) != bytes) std::abort();
  return 0;
}
