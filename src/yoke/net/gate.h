// A listening socket with pending handshakes: accepts, authenticates, and returns the connections that
// passed. Never blocks; one thread at a time. Used by Acceptor and Coordinator.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "yoke/net/connection.h"

namespace yoke::net {

class Gate {
 public:
  // At most `max_waiting` pending handshakes; the oldest is dropped first.
  Gate(const Address& address, const JobTicket& ticket, int max_waiting = Acceptor::kMaxWaiting);

  Address address() const { return bound_address(listening_.get()); }
  // Readable when pump() has work.
  int fd() const { return epoll_.get(); }
  // Milliseconds after which pump() must be called even if fd() is not readable; -1: not needed.
  int next_ms() const;
  // Handles pending events; returns newly authenticated connections.
  std::vector<std::unique_ptr<Connection>> pump();
  int64_t refused() const { return refused_; }
  const std::string& last_refusal() const { return last_refusal_; }  // who and why; empty: none yet
  size_t waiting() const { return strangers_.size(); }

 private:
  using Place = std::list<PendingHandshake>::iterator;
  void accept_new();
  void drop(Place place, const std::string& why);
  void tell(const std::string& why);

  JobTicket ticket_;
  size_t max_waiting_;
  Descriptor listening_;
  Descriptor epoll_;
  std::list<PendingHandshake> strangers_;  // pending handshakes, oldest first
  std::unordered_map<int, Place> by_fd_;
  int64_t refused_ = 0;
  std::string last_refusal_;
  int64_t untold_ = 0;
  double next_tell_ = 0;
  bool out_of_descriptors_ = false;
};

}  // namespace yoke::net
