#include "yoke/cluster/departures.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/cluster/session_wire.h"

namespace yoke::cluster {
namespace {

constexpr int64_t kMaxRank = 1 << 24;
constexpr size_t kMaxText = 1024;
constexpr size_t kMaxGroups = 1 << 16;

std::vector<int64_t> numbers(const nlohmann::json& head, const char* key) {
  auto found = head.find(key);
  if (found == head.end() || !found->is_array())
    throw CommError("a control message without a list '{}'", key);
  std::vector<int64_t> list;
  for (const auto& one : *found) {
    if (!one.is_number_integer()) throw CommError("a control message with non-numeric values in '{}'", key);
    list.push_back(one.get<int64_t>());
  }
  return list;
}

}  // namespace

void Departures::closed(int rank, uint64_t group, int size, int64_t operations) {
  if (groups_.size() >= kMaxGroups && !groups_.contains(group))
    throw CommError("more than {} groups that not all of their ranks have closed", kMaxGroups);
  Group& entry = groups_[group];
  entry.size = size;
  entry.operations[rank] = operations;
  if (entry.operations.size() >= static_cast<size_t>(size)) groups_.erase(group);
}

void Departures::left(int rank) {
  left_.insert(rank);
}

void Departures::came_back(int rank) {
  left_.erase(rank);
}

std::optional<Departures::Absent> Departures::absent(const Wait& wait) const {
  auto group = groups_.find(wait.group);
  for (int rank : wait.ranks) {
    Absent one{rank, left_.contains(rank), -1};
    bool closed = false;
    if (group != groups_.end()) {
      auto entry = group->second.operations.find(rank);
      closed = entry != group->second.operations.end();
      if (closed) one.operations = entry->second;
    }
    if (!one.left && !closed) continue;
    if (wait.number == 0 || one.operations < wait.number) return one;
  }
  return std::nullopt;
}

nlohmann::json Departures::to_json() const {
  nlohmann::json groups = nlohmann::json::array();
  for (const auto& [id, group] : groups_) {
    for (const auto& [rank, operations] : group.operations)
      groups.push_back({static_cast<int64_t>(id), group.size, rank, operations});
  }
  return {{"left", left_}, {"groups", std::move(groups)}};
}

Departures Departures::read(const nlohmann::json& document) {
  Departures result;
  for (int64_t rank : numbers(document, "left")) result.left(static_cast<int>(rank));
  auto groups = document.find("groups");
  if (groups == document.end() || !groups->is_array()) throw CommError("departures without groups");
  for (const auto& row : *groups) {
    std::vector<int64_t> entry = numbers({{"row", row}}, "row");
    if (entry.size() != 4 || entry[1] < 1 || entry[1] > kMaxRank)
      throw CommError("departures with a group of {} numbers", entry.size());
    result.closed(static_cast<int>(entry[2]), static_cast<uint64_t>(entry[0]), static_cast<int>(entry[1]),
                  entry[3]);
  }
  return result;
}

nlohmann::json to_json(const Wait& wait) {
  return {{"group", static_cast<int64_t>(wait.group)},
          {"group_name", wait.group_name.substr(0, kMaxText)},
          {"number", wait.number},
          {"what", wait.what.substr(0, kMaxText)},
          {"name", wait.name.substr(0, kMaxText)},
          {"ranks", wait.ranks},
          {"milliseconds", static_cast<int64_t>(wait.seconds * 1e3)}};
}

Wait read_wait(const nlohmann::json& head, int world_size) {
  Wait wait;
  wait.group = static_cast<uint64_t>(control::number(head, "group", INT64_MIN, INT64_MAX));
  wait.group_name = control::text(head, "group_name", kMaxText);
  wait.number = control::number(head, "number", 0, INT64_MAX);
  wait.what = control::text(head, "what", kMaxText);
  wait.name = control::text(head, "name", kMaxText);
  for (int64_t rank : numbers(head, "ranks")) {
    if (rank < 0 || rank >= world_size) throw CommError("a wait for rank {} of {}", rank, world_size);
    wait.ranks.push_back(static_cast<int>(rank));
  }
  wait.seconds = static_cast<double>(control::number(head, "milliseconds", 0, INT64_MAX)) / 1e3;
  return wait;
}

FailureReport early_end(const Departures::Absent& absent, const std::string& absent_name, const Wait& wait,
                        const std::string& waiting_name) {
  FailureReport report;
  report.rank = absent.rank;
  report.kind = "left";
  std::string end = absent.left ? "has exited normally" : std::string("has closed its communicator");
  if (wait.number > 0 && absent.operations >= 0)
    end += fmt::format(" after {} operations of group '{}'", absent.operations, wait.group_name);
  report.what = fmt::format("{} {}, but {} waits for it in {}", absent_name, end, waiting_name, wait.what);
  report.next =
      "Next: give every rank the same number of steps, or run the loop inside "
      "DistributedDataParallel::join(), where a rank that has run out of batches contributes nothing";
  return report;
}

}  // namespace yoke::cluster
