#include "yoke/net/frame.h"

#include <fmt/core.h>

#include "yoke/net/wire.h"

namespace yoke::net {
namespace {

constexpr uint32_t kMagic = 0x454b4f59;  // "YOKE"
constexpr uint8_t kVersion = 1;

// Offset of each field.
constexpr size_t kAtVersion = 4, kAtType = 5, kAtFlags = 6, kAtZero = 7, kAtChannel = 8, kAtZero16 = 10,
                 kAtGeneration = 12, kAtSequence = 16, kAtFingerprint = 24, kAtContext = 32, kAtLength = 40,
                 kAtJob = 48, kAtCrc = 52, kAtMac = 56;
static_assert(kAtMac == kFrameMacOffset);

}  // namespace

uint64_t max_payload(FrameType type) {
  switch (type) {
    case FrameType::kRequest:
    case FrameType::kReply:
    case FrameType::kAbort:
      return kMaxControlBytes;
    case FrameType::kHeartbeat:
      return 4096;
    case FrameType::kData:
    case FrameType::kMessage:
    case FrameType::kAnswer:
      return kMaxDataBytes;
  }
  return 0;
}

std::array<std::byte, kFrameHeaderBytes> encode(const FrameHeader& header, uint32_t job, uint32_t payload_crc,
                                                uint64_t mac) {
  std::array<std::byte, kFrameHeaderBytes> bytes{};
  std::byte* at = bytes.data();
  wire::put(at, kMagic);
  wire::put(at + kAtVersion, kVersion);
  wire::put(at + kAtType, static_cast<uint8_t>(header.type));
  wire::put(at + kAtFlags, header.flags);
  wire::put(at + kAtChannel, header.channel);
  wire::put(at + kAtGeneration, header.generation);
  wire::put(at + kAtSequence, header.sequence);
  wire::put(at + kAtFingerprint, header.fingerprint);
  wire::put(at + kAtContext, header.context);
  wire::put(at + kAtLength, header.length);
  wire::put(at + kAtJob, job);
  wire::put(at + kAtCrc, payload_crc);
  wire::put(at + kAtMac, mac);
  return bytes;
}

std::optional<DecodedHeader> decode(std::span<const std::byte, kFrameHeaderBytes> bytes, std::string& why) {
  const std::byte* at = bytes.data();
  if (wire::get<uint32_t>(at) != kMagic) {
    why = "the bytes are not a frame";
    return std::nullopt;
  }
  if (auto version = wire::get<uint8_t>(at + kAtVersion); version != kVersion) {
    why = fmt::format("a frame of version {}, but this program uses {}", version, kVersion);
    return std::nullopt;
  }
  DecodedHeader decoded;
  auto type = wire::get<uint8_t>(at + kAtType);
  decoded.header.type = static_cast<FrameType>(type);
  uint64_t limit = max_payload(decoded.header.type);
  if (limit == 0) {
    why = fmt::format("a frame of unknown type {}", type);
    return std::nullopt;
  }
  if (wire::get<uint8_t>(at + kAtZero) != 0 || wire::get<uint16_t>(at + kAtZero16) != 0) {
    why = "a frame whose unused bytes are not zero";
    return std::nullopt;
  }
  decoded.header.length = wire::get<uint64_t>(at + kAtLength);
  if (decoded.header.length > limit) {
    why = fmt::format("a frame of type {} with {} bytes, at most {} are allowed", type, decoded.header.length,
                      limit);
    return std::nullopt;
  }
  decoded.header.flags = wire::get<uint8_t>(at + kAtFlags);
  decoded.header.channel = wire::get<uint16_t>(at + kAtChannel);
  decoded.header.generation = wire::get<uint32_t>(at + kAtGeneration);
  decoded.header.sequence = wire::get<uint64_t>(at + kAtSequence);
  decoded.header.fingerprint = wire::get<uint64_t>(at + kAtFingerprint);
  decoded.header.context = wire::get<uint64_t>(at + kAtContext);
  decoded.job = wire::get<uint32_t>(at + kAtJob);
  decoded.payload_crc = wire::get<uint32_t>(at + kAtCrc);
  decoded.mac = wire::get<uint64_t>(at + kAtMac);
  return decoded;
}

void set_mac(std::array<std::byte, kFrameHeaderBytes>& bytes, uint64_t mac) {
  wire::put(bytes.data() + kAtMac, mac);
}

}  // namespace yoke::net
