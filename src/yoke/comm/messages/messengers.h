// Creates messengers: over authenticated connections ("tcp") or rings in shared memory ("shm").
//
// Each messenger has one thread that reads, calls handlers and completes partial writes; callers write
// themselves as far as possible without blocking. A peer that does not read the rest of a message before its
// deadline counts as lost, because a partially written message cannot be withdrawn.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "yoke/cluster/failure.h"
#include "yoke/cluster/session.h"
#include "yoke/comm/messenger.h"
#include "yoke/net/connection.h"

namespace yoke::comm {

struct MessengerSetup {
  int rank = 0;
  int size = 1;
  // Kinds of messages are 0 to kinds - 1, the same on all ranks. Sending another kind throws ConfigError;
  // receiving one closes the connection to its sender.
  uint16_t kinds = 1;
  // Limit in bytes for payloads for which neither a Place nor a reply buffer was given. A peer that announces
  // a larger one counts as lost. Memory is committed as bytes arrive, not when they are announced.
  uint64_t largest = uint64_t{1} << 30;
  std::shared_ptr<cluster::Failure> failure;
  double timeout = 60;  // seconds for all ranks to connect
  // Ranks may end, be restarted and rejoin. `life`: restart count of this rank. A restarted rank does not
  // wait for the others: it connects once to the ranks that are still in their first life; all others count
  // as lost. Over shm rank 0 cannot rejoin.
  bool may_return = false;
  int life = 0;
  // By rank: whether it joins later, in life 1, and counts as lost until then. Empty: all connect at the
  // start. Requires may_return.
  std::vector<bool> late{};
  // Registers a function that hears of peers without which the others continue although they are connected:
  // they count as lost. The result is destroyed before the messenger ends. Empty: there are none.
  using Forsaken = std::function<void(int peer, const std::string& why)>;
  std::function<std::shared_ptr<void>(Forsaken)> watch_forsaken{};
  bool is_late(int other) const { return !late.empty() && late[static_cast<size_t>(other)]; }
};

struct TcpMessengerSetup : MessengerSetup {
  uint64_t group = 0;                    // unique among all groups and messengers of a job
  std::vector<cluster::Member> members;  // by rank of the messenger; `address`: of that rank's acceptor
  net::Acceptor* acceptor = nullptr;     // must outlive the messenger
  net::JobTicket ticket;
};

struct ShmMessengerSetup : MessengerSetup {
  // Key-value store of the job, as in ShmSetup. It must be private to the job.
  std::function<void(const std::string& key, const std::string& value, Deadline deadline)> put;
  std::function<std::string(const std::string& key, Deadline deadline)> get;
  std::string key = "messages";
};

// Collective: returns once every pair of ranks is connected. Throws CommError if ranks are missing.
std::unique_ptr<Messenger> make_tcp_messenger(const TcpMessengerSetup& setup);
std::unique_ptr<Messenger> make_shm_messenger(const ShmMessengerSetup& setup);

}  // namespace yoke::comm
