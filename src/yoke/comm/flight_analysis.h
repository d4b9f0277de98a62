// Reads the flight records of all ranks and finds the first operation in which they differ.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "yoke/cluster/failure.h"

namespace yoke::comm {

struct RecordedOperation {
  std::string group;
  uint64_t number = 0;
  std::string call;
  std::string state;  // issued, started, finished or failed
};

// Contents of one rank-N.json.
struct RankRecord {
  int rank = 0;
  int world_size = 0;
  std::string host;
  int64_t pid = 0;
  std::optional<cluster::FailureReport> failure;
  std::vector<RecordedOperation> operations;  // oldest first
};

// The first operation, in one group, that a rank called differently from the majority.
struct Divergence {
  int rank = 0;           // the rank that differs
  uint64_t sequence = 0;  // number of the operation in its group
  std::string group;
  std::string expected;  // called by most ranks
  std::string got;       // called by this rank, or "nothing"
};

struct FlightAnalysis {
  std::vector<RankRecord> ranks;
  std::vector<int> missing;  // ranks without a record: killed, or on another machine
  std::optional<Divergence> first_divergence;
  // A failure report of the records, preferably one that names a rank.
  std::optional<cluster::FailureReport> culprit;
};

// Reads all rank-N.json of `folder`. Throws ConfigError: no such folder, no records in it, or an invalid
// record (with its name and what is wrong).
std::vector<RankRecord> read_flight_records(const std::filesystem::path& folder);

// Parses one record; `name` is the file name, for errors. Throws ConfigError.
RankRecord parse_flight_record(const std::string& text, const std::string& name);

// The divergence with the lowest operation number over all groups. Requires: `records` is not empty.
FlightAnalysis analyse_flight(std::vector<RankRecord> records);

}  // namespace yoke::comm
