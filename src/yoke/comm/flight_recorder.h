// Keeps the last operations of a rank, to find out after a failure where the ranks diverged.
//
// Always on: a ring buffer of fixed size, no allocation while recording. Thread-safe.
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

  // Records an operation at issue; returns the ticket for the calls below.
  uint64_t issued(const char* group, const Descriptor& descriptor, size_t bytes);
  // State changes of an operation. Ignored if its record was overwritten meanwhile.
  void started(uint64_t ticket);
  void finished(uint64_t ticket);
  void failed(uint64_t ticket);

  // All records, oldest first: rank, world_size, host, pid, failure?, operations[{group, number, call, state,
  // …}].
  nlohmann::json to_json(const cluster::FailureReport* failure) const;
  // Writes rank-N.json into `folder` (created if missing), atomically. Errors are only logged, because this
  // runs while another failure is being handled.
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
