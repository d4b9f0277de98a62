// The frame format of connections: a header of 64 bytes, followed by `length` bytes of payload.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace yoke::net {

// The closed set of frame types. An unknown type ends the connection.
enum class FrameType : uint8_t {
  kRequest = 1,    // rendezvous and control: JSON, at most kMaxControlBytes
  kReply = 2,      // likewise
  kHeartbeat = 3,  // control, empty or a progress record
  kAbort = 4,      // control: why the job ends
  kData = 5,       // collectives and point to point: part of a tensor
  kMessage = 6,    // Messenger: request
  kAnswer = 7,     // Messenger: reply
};

inline constexpr size_t kFrameHeaderBytes = 64;
inline constexpr uint64_t kMaxControlBytes = 1 << 20;
inline constexpr uint64_t kMaxDataBytes = uint64_t{1} << 30;

struct FrameHeader {
  FrameType type = FrameType::kData;
  uint8_t flags = 0;         // defined by the type
  uint16_t channel = 0;      // defined by the type (tag, message kind)
  uint32_t generation = 0;   // of the job; frames of another are refused
  uint64_t sequence = 0;     // per direction of the connection, from 0; set by the connection
  uint64_t fingerprint = 0;  // of the operation
  uint64_t context = 0;      // defined by the type (operation number, request id)
  uint64_t length = 0;       // of the payload; set by the connection
};

// Maximum payload of this type; 0 for an unknown type.
uint64_t max_payload(FrameType type);

// Fixed little-endian layout. decode() checks magic, version, type and the type's maximum length.
std::array<std::byte, kFrameHeaderBytes> encode(const FrameHeader& header, uint32_t job, uint32_t payload_crc,
                                                uint64_t mac);
struct DecodedHeader {
  FrameHeader header;
  uint32_t job = 0;
  uint32_t payload_crc = 0;
  uint64_t mac = 0;
};
// The MAC is the last field and covers everything before it.
inline constexpr size_t kFrameMacOffset = 56;
void set_mac(std::array<std::byte, kFrameHeaderBytes>& bytes, uint64_t mac);

// nullopt with `why` set if the bytes are not a valid frame header.
std::optional<DecodedHeader> decode(std::span<const std::byte, kFrameHeaderBytes> bytes, std::string& why);

}  // namespace yoke::net
