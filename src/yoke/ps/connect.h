// Messengers between workers and servers: of a job, or of threads in this process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "yoke/cluster/world.h"
#include "yoke/comm/messenger.h"

namespace yoke::ps {

// Collective over the whole job, workers and servers. auto: shm when all are on one machine, else tcp. The
// world must outlive it. Throws ConfigError, CommError.
std::unique_ptr<comm::Messenger> connect(cluster::World& world, const std::string& backend = "auto");

// Servers inside the first workers: rank r of the job is worker r and, for r < servers, server r as well.
struct Colocated {
  std::unique_ptr<comm::Messenger> worker;
  std::unique_ptr<comm::Messenger> server;  // null: none lives here
};
// Collective. Requires servers <= world.size(). A world of one talks to itself. Otherwise as connect().
Colocated connect_colocated(cluster::World& world, int servers, const std::string& backend = "auto");

// Ranks that are threads of this process, connected to each other over shm or tcp (loopback).
class LocalGroup {
 public:
  LocalGroup(int size, const std::string& backend = "shm");
  ~LocalGroup();
  comm::Messenger& messenger(int rank) { return *messengers_[static_cast<size_t>(rank)]; }
  // Takes the rank's messenger out of the group, which may end before it.
  std::unique_ptr<comm::Messenger> take(int rank) {
    return std::move(messengers_[static_cast<size_t>(rank)]);
  }
  // The rank's messenger ends: the others see it leave.
  void close(int rank) { messengers_[static_cast<size_t>(rank)].reset(); }
  // It comes back, in its next life. Requires that it was closed.
  void open_again(int rank);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
  std::vector<std::unique_ptr<comm::Messenger>> messengers_;
  std::vector<int> lives_;
};

}  // namespace yoke::ps
