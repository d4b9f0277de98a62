#include "yoke/ps/replica_messenger.h"

#include <fmt/format.h>

namespace yoke::ps {

// Callbacks hold no pointer to this object: the messenger's thread may outlive it.

ReplicaMessenger::ReplicaMessenger(comm::Messenger& messenger, const ReplicaRanks& ranks)
    : messenger_(messenger), ranks_(ranks) {}

ReplicaMessenger::ReplicaMessenger(std::unique_ptr<comm::Messenger> messenger, const ReplicaRanks& ranks)
    : owned_(std::move(messenger)), messenger_(*owned_), ranks_(ranks) {}

void ReplicaMessenger::serve(Place place, Handler handler) {
  messenger_.serve(
      [ranks = ranks_, place = std::move(place)](int from, const comm::Message& head, size_t bytes) {
        return place(peer_of(ranks, from), head, bytes);
      },
      [ranks = ranks_, handler = std::move(handler)](int from, const comm::Message& request, Answer answer) {
        handler(peer_of(ranks, from), request, std::move(answer));
      });
}

void ReplicaMessenger::on_peer_lost(PeerLost callback) {
  messenger_.on_peer_lost([ranks = ranks_, callback = std::move(callback)](int peer, const std::string& why) {
    const bool part = peer < ranks.ranks() && ranks.parts() > 1;
    callback(peer_of(ranks, peer), part ? fmt::format("its rank {}: {}", peer, why) : why);
  });
}

void ReplicaMessenger::on_peer_back(PeerBack callback) {
  messenger_.on_peer_back([ranks = ranks_, callback = std::move(callback)](int peer, int life) {
    callback(peer_of(ranks, peer), life);
  });
}

}  // namespace yoke::ps
