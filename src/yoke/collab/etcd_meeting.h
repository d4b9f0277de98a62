// The meeting point of a run whose place is kept in etcd: any peer that accepts connections hosts it, and
// another takes it over when that one is gone.
//
//   /yoke/collab/RUN/meeting    HOST:PORT, or "starting"; gone some seconds after its host is
//   /yoke/collab/RUN/record     meeting_record.h, written before peers are told of a step
//   /yoke/collab/RUN/settings   of the meeting point, from the process that started the run
//
// An hour after the last step record and settings are gone.
#pragma once

#include <memory>
#include <optional>

#include "yoke/collab/client.h"
#include "yoke/collab/meeting.h"
#include "yoke/collab/ticket.h"

namespace yoke::collab {

// How this process hosts the meeting point, if it comes to that.
struct EtcdHost {
  net::Address listen;  // port 0: any free one
  MeetingOptions options;
  bool starts_run = false;  // the run must be new, and gets these options; else the run's replace them
};

class EtcdMeeting {
 public:
  static constexpr int kSeconds = 5;         // a host that is silent for so long is gone
  static constexpr int kKeptSeconds = 3600;  // the record and the settings of a run that is over

  // `ticket.etcd` must not be empty. Without `host` this process looks only. Throws Error with kRendezvous:
  // etcd does not answer; ConfigError: `starts_run`, and etcd has a run of that name.
  EtcdMeeting(const Ticket& ticket, std::optional<EtcdHost> host);
  // Gives the place up at once, if it is ours.
  ~EtcdMeeting();
  EtcdMeeting(const EtcdMeeting&) = delete;
  EtcdMeeting& operator=(const EtcdMeeting&) = delete;

  // Where the run meets now; this process hosts it from here on if nobody else does. Throws Error with
  // kRendezvous at the deadline.
  net::Address find(Deadline deadline);
  // If this process hosts: waits until the run has ended and all peers have left.
  void wait_until_empty(Deadline deadline);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Connects to the meeting point, whether etcd knows where it is or the ticket says it. Throws as
// MeetingClient.
std::unique_ptr<MeetingClient> reach_meeting(Ticket ticket, Deadline deadline);

}  // namespace yoke::collab
