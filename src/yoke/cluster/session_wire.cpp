#include "yoke/cluster/session_wire.h"

#include <algorithm>
#include <cstring>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::cluster::control {
namespace {

constexpr int64_t kMaxRank = 1 << 24;
constexpr int64_t kMaxLife = 1 << 11;
constexpr size_t kMaxText = 16 << 10;
constexpr int kMaxDepth = 8;

// nlohmann's parser recurses for nothing, but what it builds is destroyed recursively.
bool too_deep(std::string_view json) {
  int depth = 0;
  for (char c : json) {
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > kMaxDepth) return true;
  }
  return false;
}

}  // namespace

std::vector<std::byte> encode(const nlohmann::json& head, std::string_view value) {
  // Host names and messages of other programs may hold anything; the JSON must be valid all the same.
  std::string json = head.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  auto length = static_cast<uint32_t>(json.size());
  std::vector<std::byte> bytes(sizeof length + json.size() + value.size());
  std::memcpy(bytes.data(), &length, sizeof length);
  std::memcpy(bytes.data() + sizeof length, json.data(), json.size());
  if (!value.empty()) std::memcpy(bytes.data() + sizeof length + json.size(), value.data(), value.size());
  return bytes;
}

Note decode(net::Bytes bytes) {
  uint32_t length = 0;
  if (bytes.size() < sizeof length) throw CommError("a control message of {} bytes", bytes.size());
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > bytes.size() - sizeof length)
    throw CommError("a control message of {} bytes that claims {} for its head", bytes.size(), length);
  const char* begin = reinterpret_cast<const char*>(bytes.data()) + sizeof length;
  Note note;
  if (!too_deep({begin, length})) note.head = nlohmann::json::parse(begin, begin + length, nullptr, false);
  if (!note.head.is_object()) throw CommError("a control message whose head is no JSON object");
  note.value.assign(begin + length, bytes.size() - sizeof length - length);
  return note;
}

int64_t number(const nlohmann::json& head, const char* key, int64_t low, int64_t high) {
  auto found = head.find(key);
  if (found == head.end() || !found->is_number_integer())
    throw CommError("a control message without a number '{}'", key);
  if (found->is_number_unsigned() && found->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    throw CommError("a control message with '{}' out of bounds", key);
  auto value = found->get<int64_t>();
  if (value < low || value > high)
    throw CommError("a control message with {} = {}, out of bounds", key, value);
  return value;
}

std::string text(const nlohmann::json& head, const char* key, size_t limit) {
  auto found = head.find(key);
  if (found == head.end() || !found->is_string())
    throw CommError("a control message without a text '{}'", key);
  const auto& value = found->get_ref<const std::string&>();
  if (value.size() > limit) throw CommError("a control message with {} letters in '{}'", value.size(), key);
  return value;
}

nlohmann::json to_json(const Member& member) {
  return {{"rank", member.rank}, {"host", member.host},       {"machine", member.machine},
          {"pid", member.pid},   {"address", member.address}, {"origin", member.origin},
          {"life", member.life}, {"role", member.role}};
}

Member read_member(const nlohmann::json& head) {
  Member member;
  member.rank = static_cast<int>(number(head, "rank", -kMaxRank, kMaxRank));
  member.host = text(head, "host", 256);
  member.machine = text(head, "machine", 1024);
  member.pid = number(head, "pid", 0, INT64_MAX);
  member.address = text(head, "address", 512);
  member.origin = text(head, "origin", 1024);
  member.life = static_cast<int>(number(head, "life", 0, kMaxLife));
  if (head.contains("role")) member.role = text(head, "role", 64);
  return member;
}

nlohmann::json to_json(const FailureReport& report) {
  return {{"rank", report.rank}, {"host", report.host},          {"pid", report.pid},
          {"step", report.step}, {"kind", report.kind},          {"what", report.what},
          {"next", report.next}, {"exit_code", report.exit_code}};
}

FailureReport read_report(const nlohmann::json& head) {
  FailureReport report;
  report.rank = static_cast<int>(number(head, "rank", -1, kMaxRank));
  report.host = text(head, "host", 256);
  report.pid = number(head, "pid", 0, INT64_MAX);
  report.step = number(head, "step", -1, INT64_MAX);
  report.kind = text(head, "kind", 64);
  report.what = text(head, "what", kMaxText);
  report.next = text(head, "next", kMaxText);
  report.exit_code = static_cast<int>(number(head, "exit_code", 0, 255));
  return report;
}

std::array<std::byte, 16> encode(const Progress& progress) {
  std::array<std::byte, 16> bytes;
  std::memcpy(bytes.data(), &progress.operation, 8);
  std::memcpy(bytes.data() + 8, &progress.step, 8);
  return bytes;
}

Progress read_progress(net::Bytes bytes) {
  if (bytes.size() != 16) throw CommError("a heartbeat of {} bytes", bytes.size());
  Progress progress;
  std::memcpy(&progress.operation, bytes.data(), 8);
  std::memcpy(&progress.step, bytes.data() + 8, 8);
  return progress;
}

std::string name_of(const Member& member) {
  return fmt::format("{} on {} (pid {})", name_of(member.role, member.rank), member.host, member.pid);
}

std::string name_of(const std::string& role, int rank) {
  return role.empty() ? fmt::format("rank {}", rank) : fmt::format("{} (rank {})", role, rank);
}

std::string list_ranks(const std::vector<int>& ranks) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last - i >= 2) {
      parts.push_back(fmt::format("{}-{}", ranks[i], ranks[last]));
      i = last + 1;
    } else {
      parts.push_back(std::to_string(ranks[i++]));
    }
  }
  constexpr size_t kShown = 20;
  if (parts.size() > kShown) {
    parts.resize(kShown);
    parts.push_back("…");
  }
  return join(parts);
}

}  // namespace yoke::cluster::control
