#include "yoke/comm/flight_recorder.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include <nlohmann/json.hpp>

#include "yoke/base/clock.h"
#include "yoke/base/file.h"
#include "yoke/base/log.h"

namespace yoke::comm {

FlightRecorder::FlightRecorder(int rank, int world_size, std::string host, int64_t pid)
    : rank_(rank), world_size_(world_size), host_(std::move(host)), pid_(pid), begin_(now_seconds()) {}

uint64_t FlightRecorder::issued(const char* group, const Descriptor& descriptor, size_t bytes) {
  double now = now_seconds();
  std::lock_guard lock(mutex_);
  Record& record = records_[next_ % kRecords];
  record.ticket = next_;
  std::strncpy(record.group, group, sizeof(record.group) - 1);
  record.descriptor = descriptor;
  record.bytes = bytes;
  record.state = State::kIssued;
  record.issued = now;
  record.started = record.ended = 0;
  return next_++;
}

void FlightRecorder::mark(uint64_t ticket, State state) {
  double now = now_seconds();
  std::lock_guard lock(mutex_);
  Record& record = records_[ticket % kRecords];
  if (record.ticket != ticket) return;  // overwritten since
  record.state = state;
  (state == State::kStarted ? record.started : record.ended) = now;
}

void FlightRecorder::started(uint64_t ticket) {
  mark(ticket, State::kStarted);
}
void FlightRecorder::finished(uint64_t ticket) {
  mark(ticket, State::kFinished);
}
void FlightRecorder::failed(uint64_t ticket) {
  mark(ticket, State::kFailed);
}

nlohmann::json FlightRecorder::to_json(const cluster::FailureReport* failure) const {
  static constexpr const char* kStates[] = {"issued", "started", "finished", "failed"};
  std::lock_guard lock(mutex_);
  nlohmann::json operations = nlohmann::json::array();
  uint64_t first = next_ - std::min<uint64_t>(next_, kRecords);
  for (uint64_t ticket = first; ticket < next_; ++ticket) {
    const Record& record = records_[ticket % kRecords];
    nlohmann::json one = {{"group", record.group},
                          {"number", record.descriptor.number},
                          {"call", record.descriptor.text()},
                          {"fingerprint", record.descriptor.fingerprint()},
                          {"bytes", record.bytes},
                          {"state", kStates[static_cast<size_t>(record.state)]},
                          {"issued", record.issued - begin_}};
    if (record.started > 0) one["started"] = record.started - begin_;
    if (record.ended > 0) one["ended"] = record.ended - begin_;
    operations.push_back(std::move(one));
  }
  nlohmann::json out = {{"rank", rank_},
                        {"world_size", world_size_},
                        {"host", host_},
                        {"pid", pid_},
                        {"operations", std::move(operations)}};
  if (failure != nullptr) {
    out["failure"] = {{"rank", failure->rank}, {"host", failure->host}, {"pid", failure->pid},
                      {"step", failure->step}, {"kind", failure->kind}, {"what", failure->what},
                      {"next", failure->next}};
  }
  return out;
}

void FlightRecorder::write(const std::filesystem::path& folder,
                           const cluster::FailureReport* failure) const noexcept {
  try {
    std::filesystem::create_directories(folder);
    // Names are truncated at a byte, which may split a UTF-8 character.
    write_file_atomically(folder / fmt::format("rank-{}.json", rank_),
                          to_json(failure).dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
  } catch (const std::exception& error) {
    log::warn("the flight record could not be written to {}: {}", folder.string(), error.what());
  }
}

}  // namespace yoke::comm
