// A peer's connection to the meeting point: requests and replies, with a deadline each.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "yoke/base/error.h"
#include "yoke/collab/balance.h"
#include "yoke/collab/identity.h"
#include "yoke/collab/ticket.h"

namespace yoke::collab {

// The connection to the meeting point broke: it may come back.
class MeetingLost : public CommError {
 public:
  using CommError::CommError;
};

class MeetingClient {
 public:
  // Connects. Throws Error with kRendezvous: nobody there, another run's ticket, no answer.
  MeetingClient(const Ticket& ticket, Deadline deadline);

  // Sends a request and waits for its reply. Throws MeetingLost at the deadline and if the connection is
  // lost, and Error with kRendezvous if the meeting point refuses it.
  nlohmann::json call(const nlohmann::json& request, Deadline deadline);

 private:
  std::string where_;
  std::unique_ptr<net::Connection> connection_;
};

// How a peer presents itself.
struct Hello {
  nlohmann::json run;   // see MeetingOptions
  std::string address;  // where it accepts others; empty: it cannot
  LinkSpeed link;
};

struct Welcome {
  int peer = -1;
  int64_t epoch = 0, steps = 0;
};

// Joins the run with this identity.
Welcome join_run(MeetingClient& client, const Identity& identity, const Hello& hello, Deadline deadline);

}  // namespace yoke::collab
