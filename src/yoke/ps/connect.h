// Creates messengers between workers and servers: of a job, or of threads in this process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "yoke/cluster/world.h"
#include "yoke/comm/messenger.h"
#include "yoke/ps/places.h"

namespace yoke::ps {

// Collective over all workers and servers of the job. auto: shm if all are on one machine, else tcp. The
// world must outlive the messenger. Throws ConfigError, CommError.
std::unique_ptr<comm::Messenger> connect(cluster::World& world, const std::string& backend,
                                         const Places& places);
// Nobody joins later: peers are the ranks of the job.
std::unique_ptr<comm::Messenger> connect(cluster::World& world, const std::string& backend = "auto");
// A rank that joins as this peer, after the others have connected over this backend.
std::unique_ptr<comm::Messenger> connect_late(cluster::World& world, const std::string& backend,
                                              const Places& places, int peer);

// Servers inside the first workers: rank r of the job is worker r and, for r < servers, also server r.
struct Colocated {
  std::unique_ptr<comm::Messenger> worker;
  std::unique_ptr<comm::Messenger> server;  // nullptr: no server in this process
};
// Collective. Requires servers <= world.size(). Also works in a world of one. Otherwise like connect().
Colocated connect_colocated(cluster::World& world, int servers, const std::string& backend = "auto");

// Ranks that are threads of this process, connected over shm or tcp (loopback).
class LocalGroup {
 public:
  // `late`: by rank, whether it joins later, by open_again(). Empty: all connect now.
  LocalGroup(int size, const std::string& backend = "shm", std::vector<bool> late = {});
  ~LocalGroup();
  comm::Messenger& messenger(int rank) { return *messengers_[static_cast<size_t>(rank)]; }
  // Moves the rank's messenger out of the group. With shm the messenger may outlive the group.
  std::unique_ptr<comm::Messenger> take(int rank) {
    return std::move(messengers_[static_cast<size_t>(rank)]);
  }
  // Destroys the rank's messenger: the others lose this peer.
  void close(int rank) { messengers_[static_cast<size_t>(rank)].reset(); }
  // Joins, or rejoins in its next life. Requires that it is closed.
  void open_again(int rank);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
  std::vector<std::unique_ptr<comm::Messenger>> messengers_;
  std::vector<int> lives_;
};

}  // namespace yoke::ps
