// How fast a peer can send and receive: bursts to and from another peer, each twice as large as the one
// before, until its second half takes long enough to be measured. The receiving side holds the clock, so
// neither latency counts nor what waits in the buffers of the sender.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "yoke/collab/balance.h"
#include "yoke/net/connection.h"

namespace yoke::collab {

// Answers probes on its own thread, one after the other.
class ProbeServer {
 public:
  // `acceptor` must outlive it.
  ProbeServer(net::Acceptor& acceptor, double timeout);
  ~ProbeServer();
  ProbeServer(const ProbeServer&) = delete;
  ProbeServer& operator=(const ProbeServer&) = delete;

 private:
  void serve();

  net::Acceptor& acceptor_;
  double timeout_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Both directions between this peer and the one at `address`; no more than 4 MB each way. Throws CommError:
// not reached, lost, or not done within `timeout`.
LinkSpeed probe_link(const std::string& address, const net::JobTicket& ticket, int peer, double timeout);

}  // namespace yoke::collab
