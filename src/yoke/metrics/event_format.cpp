#include "yoke/metrics/event_format.h"

#include <bit>

#include "yoke/metrics/crc32c.h"

namespace yoke::metrics {
namespace {

// Protobuf wire types.
enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// Field numbers of Event, Summary, Summary.Value and SessionLog.
enum EventField : uint32_t { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
constexpr uint32_t kSummaryValue = 1;
constexpr uint32_t kValueTag = 1;
constexpr uint32_t kValueSimple = 2;
constexpr uint32_t kSessionStatus = 1;
constexpr uint64_t kSessionStart = 1;

void put_fixed(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  out += static_cast<char>(value);
}

void put_key(std::string& out, uint32_t field, Wire wire) {
  put_varint(out, field << 3 | wire);
}

void put_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string event_at(double wall_time) {
  std::string event;
  put_key(event, kWallTime, kFixed64);
  put_fixed(event, std::bit_cast<uint64_t>(wall_time), 8);
  return event;
}

std::string event_at(double wall_time, int64_t step) {
  std::string event = event_at(wall_time);
  if (step == 0) return event;  // proto3 leaves defaults out
  put_key(event, kStep, kVarint);
  put_varint(event, static_cast<uint64_t>(step));
  return event;
}

}  // namespace

std::string encode_version_event(double wall_time) {
  std::string event = event_at(wall_time);
  put_bytes(event, kFileVersion, "brain.Event:2");
  return event;
}

std::string encode_restart_event(double wall_time, int64_t step) {
  std::string session;
  put_key(session, kSessionStatus, kVarint);
  put_varint(session, kSessionStart);
  std::string event = event_at(wall_time, step);
  put_bytes(event, kSessionLog, session);
  return event;
}

std::string encode_scalar_event(double wall_time, int64_t step, const std::vector<Scalar>& scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    put_bytes(value, kValueTag, scalar.tag);
    put_key(value, kValueSimple, kFixed32);
    put_fixed(value, std::bit_cast<uint32_t>(scalar.value), 4);
    put_bytes(summary, kSummaryValue, value);
  }
  std::string event = event_at(wall_time, step);
  put_bytes(event, kSummary, summary);
  return event;
}

std::string frame_event(std::string_view payload) {
  std::string frame;
  put_fixed(frame, payload.size(), 8);
  put_fixed(frame, masked_crc32c(frame), 4);
  frame += payload;
  put_fixed(frame, masked_crc32c(payload), 4);
  return frame;
}

}  // namespace yoke::metrics
