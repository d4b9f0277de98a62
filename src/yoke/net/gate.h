// A listening socket and the strangers before it: accepts, authenticates, and hands over those who proved
// that they belong here. Never blocks; one thread at a time. Acceptor and Coordinator stand on it.
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
  // At most `max_waiting` strangers at a time; the oldest goes first.
  Gate(const Address& address, const JobTicket& ticket, int max_waiting = Acceptor::kMaxWaiting);

  Address address() const { return bound_address(listening_.get()); }
  // Readable when pump() has something to do.
  int fd() const { return epoll_.get(); }
  // Milliseconds after which pump() should be called without being readable; -1: nobody waits.
  int next_ms() const;
  std::vector<std::unique_ptr<Connection>> pump();
  int64_t refused() const { return refused_; }
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
  std::list<PendingHandshake> strangers_;  // in order of arrival
  std::unordered_map<int, Place> by_fd_;
  int64_t refused_ = 0;
  int64_t untold_ = 0;
  double next_tell_ = 0;
  bool out_of_descriptors_ = false;
};

}  // namespace yoke::net
