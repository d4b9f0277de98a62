// Connections between the peers of a group that outlive its round: the next round of the same two need not
// dial.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "yoke/base/clock.h"
#include "yoke/net/connection.h"

namespace yoke::collab {

// Idle: nothing is in flight. One thread.
class KeptLinks {
 public:
  // Routers forget connections that are idle for long, without a word to the ends.
  static constexpr double kLongestIdle = 30;
  using Link = std::unique_ptr<net::Connection>;

  // Of a reducer that this peer dialed; nullptr: none at this address.
  Link take_dialed(int peer, const std::string& address) {
    auto at = dialed_.find(peer);
    if (at == dialed_.end()) return nullptr;
    const bool usable = at->second.address == address && now_seconds() < at->second.since + kLongestIdle;
    Link link = usable ? std::move(at->second.link) : nullptr;
    dialed_.erase(at);
    return link;
  }
  void keep_dialed(int peer, const std::string& address, Link link) {
    dialed_[peer] = {address, now_seconds(), std::move(link)};
  }

  // Of a sender that dialed this peer.
  Link take_accepted(int peer) {
    auto at = accepted_.find(peer);
    if (at == accepted_.end()) return nullptr;
    Link link = std::move(at->second);
    accepted_.erase(at);
    return link;
  }
  void keep_accepted(int peer, Link link) { accepted_[peer] = std::move(link); }

 private:
  struct Dialed {
    std::string address;
    double since;
    Link link;
  };
  std::map<int, Dialed> dialed_;
  std::map<int, Link> accepted_;
};

}  // namespace yoke::collab
