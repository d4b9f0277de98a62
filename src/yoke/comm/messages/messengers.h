// Makes messengers: over authenticated connections ("tcp"), or over rings in shared memory ("shm").
//
// Each has one thread of its own that reads, calls handlers and finishes what could not be sent at once;
// whoever asks sends itself where it can. A peer that does not take the rest of a message until that
// message's deadline counts as lost: bytes that are half on their way cannot be taken back.
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
  // Kinds of messages are 0 to kinds - 1, the same on all ranks. Others are refused here and, when a peer
  // sends one, end the connection to it.
  uint16_t kinds = 1;
  // Bytes of a payload that nobody has given a place. A peer that announces more, in a message or in a reply
  // larger than any that was asked for, is lost. Memory is used as bytes arrive, not as they are announced.
  uint64_t largest = uint64_t{1} << 30;
  std::shared_ptr<cluster::Failure> failure;
  double timeout = 60;  // seconds until all ranks must have come
  // Ranks that end may be started again and come back. `life`: how often this one was. Who comes back returns
  // at once and is connected to the ranks that are still in their first life; others are lost to it. Over shm
  // rank 0 cannot come back.
  bool may_return = false;
  int life = 0;
};

struct TcpMessengerSetup : MessengerSetup {
  uint64_t group = 0;                    // differs between all groups and messengers of a job
  std::vector<cluster::Member> members;  // by rank of the messenger; `address`: of that rank's acceptor
  net::Acceptor* acceptor = nullptr;
  net::JobTicket ticket;
};

struct ShmMessengerSetup : MessengerSetup {
  // As in ShmSetup: small strings between the ranks, over a channel that is not open to others.
  std::function<void(const std::string& key, const std::string& value, Deadline deadline)> put;
  std::function<std::string(const std::string& key, Deadline deadline)> get;
  std::string key = "messages";
};

// Collective: return when every pair of ranks is connected. Throw CommError when ranks do not come.
std::unique_ptr<Messenger> make_tcp_messenger(const TcpMessengerSetup& setup);
std::unique_ptr<Messenger> make_shm_messenger(const ShmMessengerSetup& setup);

}  // namespace yoke::comm
