// The meeting point: a Meeting behind an authenticated, encrypted port, on its own thread.
//
// Strangers without the run's key never get past the handshake (net/gate.h). Requests are limited in
// size, and a peer that sends too large ones loses its connection; requests that come too fast wait.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "yoke/collab/meeting.h"
#include "yoke/collab/ticket.h"

namespace yoke::collab {

class MeetingServer {
 public:
  static constexpr uint64_t kMaxRequestBytes = 64 << 10;
  static constexpr double kMaxRequestsPerSecond = 2000;  // of one link; more of them wait

  // Listens at ticket.meeting (port 0: any free one). Throws Error with kRendezvous if it cannot.
  // `record`: file that is replaced before peers are told of a step, to take up the run later; empty: none.
  MeetingServer(const Ticket& ticket, MeetingOptions options, const std::filesystem::path& record = {});
  // `save`: called with the record instead, in the thread of the meeting point, which ends if it throws
  // Error.
  using Save = std::function<void(const MeetingRecord&)>;
  MeetingServer(const Ticket& ticket, MeetingOptions options, Save save);
  ~MeetingServer();
  MeetingServer(const MeetingServer&) = delete;
  MeetingServer& operator=(const MeetingServer&) = delete;

  net::Address address() const;
  // Connections refused so far: strangers.
  int64_t refused() const;
  // Waits until the run has ended and all peers have left, at most until the deadline; whether they have.
  bool wait_until_empty(Deadline deadline);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::collab
