// Tracks which ranks have left or closed a group, to distinguish a slow peer from one that will never arrive.
//
// Ranks may end at different times, and a rank that has ended may already have completed its part of an
// operation that others are still in. Therefore operations are counted: a rank that closes a group reports
// how many of its operations it has started, and an operation above that number can never complete. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "yoke/cluster/failure.h"

namespace yoke::cluster {

// Group of all ranks; heartbeats carry its operation numbers.
constexpr uint64_t kWorldGroup = 1;

// An operation that a rank is blocked in, and the ranks it needs.
struct Wait {
  uint64_t group = 0;
  std::string group_name;
  int64_t number = 0;      // in the group; 0: point to point, not counted
  std::string what;        // "all_reduce #7 'bucket 0' sum of fp32 [1000]"
  std::string name;        // "all_reduce 'bucket 0'"
  std::vector<int> ranks;  // ranks of the job, possibly including this one
  double seconds = 0;      // without progress so far
};

nlohmann::json to_json(const Wait& wait);
Wait read_wait(const nlohmann::json& head, int world_size);  // throws CommError

class Departures {
 public:
  // `rank` has started `operations` operations of a group of `size` ranks and will start no more. A group
  // that all ranks have closed is dropped. Throws CommError if too many groups are open.
  void closed(int rank, uint64_t group, int size, int64_t operations);
  void left(int rank);  // the job, normally; it has closed its groups before
  void came_back(int rank);

  struct Absent {
    int rank = -1;
    bool left = false;        // has left the job, not only closed the group
    int64_t operations = -1;  // of the group that it started; -1: unknown
  };
  // The first rank needed by `wait` that will never start the operation.
  std::optional<Absent> absent(const Wait& wait) const;

  nlohmann::json to_json() const;
  static Departures read(const nlohmann::json& document);  // throws CommError

 private:
  struct Group {
    int size = 0;
    std::map<int, int64_t> operations;  // by rank that has closed the group
  };
  std::map<uint64_t, Group> groups_;
  std::set<int> left_;
};

// The report for a wait for an absent rank. Names are like "rank 0 on node1 (pid 4711)".
FailureReport early_end(const Departures::Absent& absent, const std::string& absent_name, const Wait& wait,
                        const std::string& waiting_name);

}  // namespace yoke::cluster
