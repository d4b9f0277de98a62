#include "yoke/cluster/session_wire.h"

#include <algorithm>
#include <cstring>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/cluster/identity.h"
#include "yoke/net/address.h"

namespace yoke::cluster::control {
namespace {

constexpr int64_t kMaxRank = 1 << 24;
constexpr int64_t kMaxLife = 1 << 11;
constexpr size_t kMaxHost = 256;
constexpr size_t kMaxKind = 64;
constexpr size_t kMaxAddress = 512;
constexpr size_t kMaxText = 16 << 10;
constexpr int kMaxDepth = 8;
constexpr double kMaxSeconds = 3600;

// nlohmann's parser does not recurse, but destroying its result does: limit the depth. Brackets inside
// strings do not count; error messages may contain any number of them.
bool too_deep(std::string_view json) {
  int depth = 0;
  bool in_text = false;
  for (size_t i = 0; i < json.size(); ++i) {
    char c = json[i];
    if (in_text && c == '\\') ++i;
    if (c == '"') in_text = !in_text;
    if (in_text) continue;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > kMaxDepth) return true;
  }
  return false;
}

// Invalid UTF-8 bytes become three bytes each when encoded.
std::string cut(const std::string& text, size_t limit) {
  return text.substr(0, limit / 3);
}

// Other ranks connect to it: an invalid address is the error of its owner, not theirs.
std::string address(const nlohmann::json& head, const char* key) {
  std::string value = text(head, key, kMaxAddress);
  try {
    if (!value.empty()) net::parse_address(value);
  } catch (const Error& error) {
    throw CommError("a control message whose '{}' is not an address: {}", key, error.what());
  }
  return value;
}

}  // namespace

std::vector<std::byte> encode(const nlohmann::json& head, std::string_view value) {
  // Host names and messages of other programs may contain any bytes; the JSON must be valid all the same.
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
    throw CommError("a control message of {} bytes with a head of {}", bytes.size(), length);
  const char* begin = reinterpret_cast<const char*>(bytes.data()) + sizeof length;
  Note note;
  if (!too_deep({begin, length})) note.head = nlohmann::json::parse(begin, begin + length, nullptr, false);
  if (!note.head.is_object()) throw CommError("a control message whose head is not a JSON object");
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
    throw CommError("a control message without a string '{}'", key);
  const auto& value = found->get_ref<const std::string&>();
  if (value.size() > limit)
    throw CommError("a control message with {} characters in '{}'", value.size(), key);
  return value;
}

bool from_rank(net::FrameType type) {
  return type == net::FrameType::kRequest || type == net::FrameType::kHeartbeat;
}

bool from_coordinator(net::FrameType type) {
  return type == net::FrameType::kReply || type == net::FrameType::kHeartbeat ||
         type == net::FrameType::kAbort;
}

bool flag(const nlohmann::json& head, const char* key) {
  auto found = head.find(key);
  if (found == head.end() || !found->is_boolean())
    throw CommError("a control message without a boolean '{}'", key);
  return found->get<bool>();
}

double seconds(const nlohmann::json& head, const char* key) {
  auto found = head.find(key);
  if (found == head.end() || !found->is_number())
    throw CommError("a control message without seconds '{}'", key);
  auto value = found->get<double>();
  if (!(value > 0 && value <= kMaxSeconds))
    throw CommError("a control message with {} = {} s, out of bounds", key, value);
  return value;
}

std::vector<int> ranks(const nlohmann::json& head, const char* key, int world_size) {
  auto found = head.find(key);
  if (found == head.end() || !found->is_array() || found->size() > static_cast<size_t>(world_size))
    throw CommError("a control message without a list of ranks '{}'", key);
  std::vector<int> list;
  for (const nlohmann::json& one : *found)
    list.push_back(static_cast<int>(number({{key, one}}, key, 0, world_size - 1)));
  return list;
}

nlohmann::json to_json(const Member& member) {
  return {{"rank", member.rank},       {"host", member.host},
          {"machine", member.machine}, {"pid", member.pid},
          {"address", member.address}, {"origin", member.origin},
          {"life", member.life},       {"role", member.role},
          {"seat", member.seat},       {"replaceable", member.replaceable}};
}

Member read_member(const nlohmann::json& head) {
  Member member;
  member.rank = static_cast<int>(number(head, "rank", -kMaxRank, kMaxRank));
  member.host = text(head, "host", kMaxHost);
  member.machine = text(head, "machine", 1024);
  member.pid = number(head, "pid", 0, INT64_MAX);
  member.address = address(head, "address");
  member.origin = text(head, "origin", 1024);
  member.life = static_cast<int>(number(head, "life", 0, kMaxLife));
  member.role = text(head, "role", kMaxRole);
  member.seat = head.contains("seat") ? static_cast<int>(number(head, "seat", -1, kMaxRank)) : -1;
  member.replaceable = head.contains("replaceable") && flag(head, "replaceable");
  return member;
}

void add_traits(const JobTraits& traits, nlohmann::json& head) {
  std::vector<size_t> expendable;
  for (size_t rank = 0; rank < traits.expendable.size(); ++rank)
    if (traits.expendable[rank]) expendable.push_back(rank);
  if (!expendable.empty()) head["expendable"] = std::move(expendable);
  if (traits.late_ranks > 0) head["late_ranks"] = traits.late_ranks;
}

JobTraits read_traits(const nlohmann::json& head, int world_size) {
  JobTraits traits;
  if (head.contains("expendable")) traits.expendable.resize(static_cast<size_t>(world_size));
  if (head.contains("expendable"))
    for (int rank : ranks(head, "expendable", world_size))
      traits.expendable[static_cast<size_t>(rank)] = true;
  if (head.contains("late_ranks"))
    traits.late_ranks = static_cast<int>(number(head, "late_ranks", 0, kMaxWorldSize));
  return traits;
}

nlohmann::json to_json(const std::vector<std::pair<int, int>>& links) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [a, b] : links) list.push_back({a, b});
  return list;
}

std::vector<std::pair<int, int>> read_links(const nlohmann::json& head, const char* key, int world_size) {
  auto found = head.find(key);
  const size_t most = static_cast<size_t>(world_size) * static_cast<size_t>(world_size);
  if (found == head.end() || !found->is_array() || found->size() > most)
    throw CommError("a control message without a list of links '{}'", key);
  std::vector<std::pair<int, int>> links;
  for (const nlohmann::json& one : *found) {
    if (!one.is_array() || one.size() != 2) throw CommError("a link that is not of two ranks");
    const auto a = static_cast<int>(number({{key, one[0]}}, key, 0, world_size - 1));
    const auto b = static_cast<int>(number({{key, one[1]}}, key, 0, world_size - 1));
    if (a >= b) throw CommError("a link of rank {} to rank {}", a, b);
    links.emplace_back(a, b);
  }
  return links;
}

nlohmann::json to_json(const Epoch& epoch) {
  nlohmann::json members = nlohmann::json::array();
  for (const Member& member : epoch.members) members.push_back(to_json(member));
  return {{"epoch", epoch.number},    {"rank", epoch.rank},        {"members", std::move(members)},
          {"cause", epoch.cause},     {"losses", epoch.losses},    {"joins", epoch.joins},
          {"elastic", epoch.elastic}, {"in_doubt", epoch.in_doubt}};
}

Epoch read_epoch(const nlohmann::json& head) {
  Epoch epoch;
  auto list = head.find("members");
  if (list == head.end() || !list->is_array() || list->empty() || list->size() > kMaxRank)
    throw CommError("an epoch without members");
  const auto size = static_cast<int>(list->size());
  epoch.members = read_members(head, size);
  epoch.number = static_cast<int>(number(head, "epoch", 0, INT32_MAX));
  epoch.rank = static_cast<int>(number(head, "rank", 0, size - 1));
  epoch.cause = text(head, "cause", kMaxText);
  epoch.losses = static_cast<int>(number(head, "losses", 0, INT32_MAX));
  epoch.joins = static_cast<int>(number(head, "joins", 0, INT32_MAX));
  epoch.elastic = flag(head, "elastic");
  epoch.in_doubt = flag(head, "in_doubt");
  return epoch;
}

std::vector<Member> read_members(const nlohmann::json& head, int world_size, bool or_more) {
  auto found = head.find("members");
  const size_t wanted = static_cast<size_t>(world_size);
  if (found == head.end() || !found->is_array() || found->size() < wanted ||
      found->size() > (or_more ? static_cast<size_t>(kMaxRank) : wanted))
    throw CommError("a member list that does not have {} ranks", world_size);
  std::vector<Member> members;
  for (const nlohmann::json& one : *found) {
    members.push_back(read_member(one));
    if (members.back().rank != static_cast<int>(members.size()) - 1)
      throw CommError("a member list with rank {} in place of {}", members.back().rank, members.size() - 1);
  }
  return members;
}

nlohmann::json to_json(const FailureReport& report) {
  return {{"rank", report.rank},
          {"host", cut(report.host, kMaxHost)},
          {"pid", report.pid},
          {"step", report.step},
          {"kind", cut(report.kind, kMaxKind)},
          {"what", cut(report.what, kMaxText)},
          {"next", cut(report.next, kMaxText)},
          {"exit_code", report.exit_code},
          {"role", cut(report.role, kMaxRole)}};
}

FailureReport read_report(const nlohmann::json& head, int world_size) {
  FailureReport report;
  report.rank = static_cast<int>(number(head, "rank", -1, world_size - 1));
  report.host = text(head, "host", kMaxHost);
  report.pid = number(head, "pid", 0, INT64_MAX);
  report.step = number(head, "step", -1, INT64_MAX);
  report.kind = text(head, "kind", kMaxKind);
  report.what = text(head, "what", kMaxText);
  report.next = text(head, "next", kMaxText);
  report.exit_code = static_cast<int>(number(head, "exit_code", 0, 255));
  report.role = text(head, "role", kMaxRole);
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
  if (progress.operation < -1 || progress.step < -1)
    throw CommError("a heartbeat of operation {} and step {}", progress.operation, progress.step);
  return progress;
}

std::string name_of(const Member& member) {
  return fmt::format("{} on {} (pid {})", rank_name(member.rank, member.role), member.host, member.pid);
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
