// Who takes no further part, and in what: tells a slow peer from one that will never come.
//
// Ranks may end at different times, and one that has ended may have done its part of an operation that others
// are still in. So operations are counted: whoever closes a group says how many of its operations it has
// entered, and an operation above that number can never complete.
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

// The group of all ranks, whose operations heartbeats count.
constexpr uint64_t kWorldGroup = 1;

// An operation that a rank is in, and whom it needs for it.
struct Wait {
  uint64_t group = 0;
  std::string group_name;
  int64_t number = 0;      // of the group's operations; 0: between two ranks, not counted
  std::string what;        // "all_reduce #7 'bucket 0' sum of fp32 [1000]"
  std::string name;        // "all_reduce 'bucket 0'"
  std::vector<int> ranks;  // of the job, this one included or not
  double seconds = 0;      // so far, without progress
};

nlohmann::json to_json(const Wait& wait);
Wait read_wait(const nlohmann::json& head, int world_size);  // throws CommError

class Departures {
 public:
  // `rank` has entered `operations` operations of a group of `size` ranks and will enter no more. A group
  // that all have closed is forgotten. Throws CommError for more groups than a job can have.
  void closed(int rank, uint64_t group, int size, int64_t operations);
  void left(int rank);  // in good order; it has closed its groups before
  void came_back(int rank);

  struct Absent {
    int rank = -1;
    bool left = false;        // the job, not only the group
    int64_t operations = -1;  // of the group that it entered; -1: it did not say
  };
  // The first of those that `wait` needs who will never enter it.
  std::optional<Absent> absent(const Wait& wait) const;

  nlohmann::json to_json() const;
  static Departures read(const nlohmann::json& document);  // throws CommError

 private:
  struct Group {
    int size = 0;
    std::map<int, int64_t> operations;  // by rank that has closed it
  };
  std::map<uint64_t, Group> groups_;
  std::set<int> left_;
};

// The failure of a rank that waits for an absent one. Names like "rank 0 on node1 (pid 4711)".
FailureReport early_end(const Departures::Absent& absent, const std::string& absent_name, const Wait& wait,
                        const std::string& waiting_name);

}  // namespace yoke::cluster
