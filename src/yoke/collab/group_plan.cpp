#include <cmath>

#include "yoke/collab/group.h"
#include "yoke/collab/meeting_fields.h"

namespace yoke::collab {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostElements = int64_t{1} << 40;
constexpr size_t kMostMembers = 1024;

uint64_t token_field(const Json& message, const char* name) {
  const Json& value = field(message, name);
  if (!value.is_number_unsigned() && !(value.is_number_integer() && value.get<int64_t>() >= 0))
    throw BadMessage(fmt::format("field '{}' is not a token", name));
  return value.get<uint64_t>();
}

GroupMember parse_member(const Json& row) {
  GroupMember member;
  member.peer = static_cast<int>(integer_field(row, "peer", 0, INT32_MAX));
  member.name = text_field(row, "name");
  member.address = text_field(row, "address");
  member.weight = number_field(row, "weight");
  if (!(member.weight >= 0 && member.weight < 1e15)) throw BadMessage("field 'weight' is out of range");
  member.begin = integer_field(row, "begin", 0, kMostElements);
  member.count = integer_field(row, "count", 0, kMostElements);
  member.send_token = token_field(row, "send_token");
  member.receive_token = token_field(row, "receive_token");
  return member;
}

}  // namespace

GroupPlan parse_group(const Json& message) {
  GroupPlan plan;
  plan.epoch = integer_field(message, "epoch", 0, INT64_MAX);
  plan.phase = integer_field(message, "phase", 0, 1024);
  plan.attempt = integer_field(message, "attempt", 0, INT32_MAX);
  plan.elements = integer_field(message, "elements", 0, kMostElements);
  plan.suspects = static_cast<int>(integer_field(message, "suspects", 0, 1024));
  plan.seconds = number_field(message, "seconds");
  if (!(plan.seconds > 0 && plan.seconds < 1e9)) throw BadMessage("field 'seconds' is out of range");
  plan.patience = number_field(message, "patience");
  if (!(plan.patience > 0 && plan.patience < 1e9)) throw BadMessage("field 'patience' is out of range");
  try {
    plan.robust = parse_robust(text_field(message, "robust", 32));
  } catch (const ConfigError&) {
    throw BadMessage("field 'robust' is unknown");
  }
  const int64_t self = integer_field(message, "self", 0, INT32_MAX);
  plan.self = kMostMembers;
  int64_t next = 0;
  for (const Json& row : list_field(message, "members", kMostMembers)) {
    GroupMember member = parse_member(row);
    if (member.begin != next) throw BadMessage("the parts of the vector leave gaps or overlap");
    if (member.count > 0 && member.address.empty()) throw BadMessage("a reducer without an address");
    next += member.count;
    if (member.peer == self) plan.self = plan.members.size();
    plan.members.push_back(std::move(member));
  }
  if (next != plan.elements) throw BadMessage("the parts do not cover the vector");
  if (plan.self == kMostMembers) throw BadMessage("this peer is not a member");
  return plan;
}

}  // namespace yoke::collab
