// Reads the flight records of all ranks and finds where they parted.
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
  std::string state;  // issued, started, finished, failed
};

struct RankRecord {
  int rank = 0;
  int world_size = 0;
  std::string host;
  int64_t pid = 0;
  std::optional<cluster::FailureReport> failure;
  std::vector<RecordedOperation> operations;  // oldest first
};

struct Divergence {
  int rank = 0;           // who differs from most
  uint64_t sequence = 0;  // number of the operation in its group
  std::string group;
  std::string expected;  // what most ranks called
  std::string got;       // what this one called, or "nothing"
};

struct FlightAnalysis {
  std::vector<RankRecord> ranks;
  std::vector<int> missing;  // ranks that left no record: killed, or on another machine
  std::optional<Divergence> first_divergence;
  std::optional<cluster::FailureReport> culprit;
};

// Throws ConfigError: no folder, no records in it, a file that is no flight record (with its name and what is
// wrong).
std::vector<RankRecord> read_flight_records(const std::filesystem::path& folder);

// One of them. `name`: of the file, for errors.
RankRecord parse_flight_record(const std::string& text, const std::string& name);

FlightAnalysis analyse_flight(std::vector<RankRecord> records);

}  // namespace yoke::comm
