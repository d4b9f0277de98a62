// The last operations of a rank, for finding out afterwards who went another way first.
//
// Always on: a fixed ring of records, no allocation while recording. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "yoke/cluster/failure.h"
#include "yoke/comm/operation.h"

namespace yoke::comm {

class FlightRecorder {
 public:
  static constexpr size_t kRecords = 256;

  FlightRecorder(int rank, int world_size, std::string host, int64_t pid);

  // An operation was issued on a group; returns its ticket for what follows.
  uint64_t issued(const char* group, const Descriptor& descriptor, size_t bytes);
  void started(uint64_t ticket);
  void finished(uint64_t ticket);
  void failed(uint64_t ticket);

  // What is known, oldest first: rank, world_size, host, pid, failure?, operations[{group, number, call,
  // state, …}].
  nlohmann::json to_json(const cluster::FailureReport* failure) const;
  // Writes rank-N.json into `folder` (made if needed), whole or not at all. Errors are logged: this runs when
  // something else has gone wrong already.
  void write(const std::filesystem::path& folder, const cluster::FailureReport* failure) const noexcept;

 private:
  enum class State : uint8_t { kIssued, kStarted, kFinished, kFailed };
  struct Record {
    uint64_t ticket = 0;
    char group[24] = {};
    Descriptor descriptor;
    size_t bytes = 0;
    State state = State::kIssued;
    double issued = 0;
    double started = 0;
    double ended = 0;
  };
  void mark(uint64_t ticket, State state);

  const int rank_;
  const int world_size_;
  const std::string host_;
  const int64_t pid_;
  const double begin_;
  mutable std::mutex mutex_;
  uint64_t next_ = 0;
  std::array<Record, kRecords> records_;
};

}  // namespace yoke::comm
