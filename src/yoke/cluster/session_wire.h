// Wire format between ranks and coordinator: a JSON object, followed by raw bytes for values.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/cluster/failure.h"
#include "yoke/cluster/session.h"
#include "yoke/net/frame.h"
#include "yoke/net/secret.h"

namespace yoke::cluster::control {

constexpr size_t kMaxRole = 128;

struct Note {
  nlohmann::json head;  // an object
  std::string value;
};

std::vector<std::byte> encode(const nlohmann::json& head, std::string_view value = {});
// Throws CommError if malformed.
Note decode(net::Bytes bytes);

// Whether frames of this type are valid on a control connection in this direction. Check before allocating
// the payload: other types may be much larger.
bool from_rank(net::FrameType type);
bool from_coordinator(net::FrameType type);

// Fields; throw CommError if missing, of another type or out of range.
int64_t number(const nlohmann::json& head, const char* key, int64_t low, int64_t high);
std::string text(const nlohmann::json& head, const char* key, size_t limit);
bool flag(const nlohmann::json& head, const char* key);
double seconds(const nlohmann::json& head, const char* key);  // > 0, at most an hour
std::vector<int> ranks(const nlohmann::json& head, const char* key, int world_size);

nlohmann::json to_json(const Member& member);
Member read_member(const nlohmann::json& head);
// By rank, complete; `or_more`: ranks that have joined later follow.
std::vector<Member> read_members(const nlohmann::json& head, int world_size, bool or_more = false);
// Fields of a join. `late_ranks` is absent where it is 0, `expendable` where no rank is.
void add_traits(const JobTraits& traits, nlohmann::json& head);
JobTraits read_traits(const nlohmann::json& head, int world_size);
// Pairs of different ranks, the lower one first.
nlohmann::json to_json(const std::vector<std::pair<int, int>>& links);
std::vector<std::pair<int, int>> read_links(const nlohmann::json& head, const char* key, int world_size);
nlohmann::json to_json(const Epoch& epoch);
Epoch read_epoch(const nlohmann::json& head);
nlohmann::json to_json(const FailureReport& report);  // truncates long texts to what read_report() accepts
FailureReport read_report(const nlohmann::json& head, int world_size);

// Contents of a rank's heartbeat.
struct Progress {
  int64_t operation = -1;
  int64_t step = -1;
};
std::array<std::byte, 16> encode(const Progress& progress);
Progress read_progress(net::Bytes bytes);  // throws CommError

// "rank 2 on node1 (pid 4711)", "stage 1 (rank 2) on node1 (pid 4711)".
std::string name_of(const Member& member);
// "3, 7" or "0-5, 9".
std::string list_ranks(const std::vector<int>& ranks);

}  // namespace yoke::cluster::control
