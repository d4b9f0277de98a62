// A messenger on which every worker is one peer, however many ranks it has.
//
// Servers and the scheduler know workers by number. Where a worker is a replica in parts, its ranks all speak
// under that number, each of its own part; what a server tells a worker goes to the first of its ranks. The
// loss of one of them is the loss of the worker.
//
// Peers: 0 .. replicas-1 are workers, servers follow.
#pragma once

#include <memory>

#include "yoke/comm/messenger.h"
#include "yoke/ps/replica_ranks.h"

namespace yoke::ps {

class ReplicaMessenger final : public comm::Messenger {
 public:
  // `messenger`: of all ranks of the job; must outlive this one.
  ReplicaMessenger(comm::Messenger& messenger, const ReplicaRanks& ranks);
  // Owns it: it ends with this one.
  ReplicaMessenger(std::unique_ptr<comm::Messenger> messenger, const ReplicaRanks& ranks);
  ~ReplicaMessenger() override { owned_.reset(); }  // its thread may still ask for ranks

  int rank() const override { return peer_of(ranks_, messenger_.rank()); }
  int size() const override { return messenger_.size() - ranks_.ranks() + ranks_.replicas; }
  const std::string& backend() const override { return messenger_.backend(); }
  bool is_lost(int peer) const override { return messenger_.is_lost(rank_of(peer)); }
  void serve(Place place, Handler handler) override;
  void on_peer_lost(PeerLost callback) override;
  void on_peer_back(PeerBack callback) override;
  std::future<comm::Message> ask(int peer, const comm::Message& request, std::span<std::byte> into,
                                 Deadline deadline) override {
    return messenger_.ask(rank_of(peer), request, into, deadline);
  }
  void ask_then(int peer, const comm::Message& request, std::span<std::byte> into, Deadline deadline,
                Done done) override {
    messenger_.ask_then(rank_of(peer), request, into, deadline, std::move(done));
  }
  void tell(int peer, const comm::Message& message, Deadline deadline) override {
    messenger_.tell(rank_of(peer), message, deadline);
  }
  void run_soon(std::function<void()> task) override { messenger_.run_soon(std::move(task)); }
  void run_later(double seconds, std::function<void()> task) override {
    messenger_.run_later(seconds, std::move(task));
  }

 private:
  static int peer_of(const ReplicaRanks& ranks, int rank) {
    return rank < ranks.ranks() ? ranks.replica_of(rank) : rank - ranks.ranks() + ranks.replicas;
  }
  int rank_of(int peer) const {
    return peer < ranks_.replicas ? ranks_.first_of(peer) : peer - ranks_.replicas + ranks_.ranks();
  }

  std::unique_ptr<comm::Messenger> owned_;
  comm::Messenger& messenger_;
  ReplicaRanks ranks_;
};

}  // namespace yoke::ps
