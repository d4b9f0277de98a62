// What ranks and coordinator say to each other, as bytes: a JSON object and, for values, raw bytes after it.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/cluster/failure.h"
#include "yoke/cluster/session.h"
#include "yoke/net/secret.h"

namespace yoke::cluster::control {

struct Note {
  nlohmann::json head;  // an object
  std::string value;
};

std::vector<std::byte> encode(const nlohmann::json& head, std::string_view value = {});
// Throws CommError: not of this form.
Note decode(net::Bytes bytes);

// Fields; throw CommError when they are missing, of another type or out of bounds.
int64_t number(const nlohmann::json& head, const char* key, int64_t low, int64_t high);
std::string text(const nlohmann::json& head, const char* key, size_t limit);

nlohmann::json to_json(const Member& member);
Member read_member(const nlohmann::json& head);
nlohmann::json to_json(const FailureReport& report);
FailureReport read_report(const nlohmann::json& head);

// What a heartbeat of a rank carries.
struct Progress {
  int64_t operation = -1;
  int64_t step = -1;
};
std::array<std::byte, 16> encode(const Progress& progress);
Progress read_progress(net::Bytes bytes);  // throws CommError

// "rank 2 on node1 (pid 4711)".
std::string name_of(const Member& member);
// "rank 4", or "parameter server 1 (rank 4)".
std::string name_of(const std::string& role, int rank);
// "3, 7" or "0-5, 9".
std::string list_ranks(const std::vector<int>& ranks);

}  // namespace yoke::cluster::control
