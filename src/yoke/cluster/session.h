// A rank's connection to the coordinator: key-value store, heartbeat, and the news of failures.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/deadline.h"
#include "yoke/cluster/failure.h"
#include "yoke/net/connection.h"

namespace yoke::cluster {

struct Member {
  int rank = 0;
  std::string host;     // machine's name, for people
  std::string machine;  // the same for ranks of one machine (boot id and namespaces), and for no others
  int64_t pid = 0;
  std::string address;  // where this rank accepts data connections
  std::string origin;   // where rank and world size come from, for errors: "RANK=2, WORLD_SIZE=4 (torchrun)"
  int life = 0;         // how often it was started again into the running job
  std::string role{};   // what it is besides a rank, for errors: "parameter server 1"
};

class Session {
 public:
  // Joins: authenticates, announces itself, and waits until all ranks have come. Says on stderr every few
  // seconds whom it waits for and how long still. Throws Error with kRendezvous: names missing or duplicate
  // ranks and the variables they came from.
  Session(const net::Address& coordinator, const net::JobTicket& ticket, const Member& self, int world_size,
          std::shared_ptr<Failure> failure, Deadline deadline);
  ~Session();  // leaves in order: the others are told that this rank ended well

  const std::vector<Member>& members() const;  // by rank

  static constexpr size_t kMaxValue = (1 << 20) - 4096;

  // Thread-safe. Values are any bytes, at most kMaxValue of them. Throws CommError (failure, deadline).
  void put(const std::string& key, const std::string& value, Deadline deadline);
  std::string get(const std::string& key, Deadline deadline);  // waits until somebody has put it

  // What this rank is doing, carried by heartbeats: lets others name who has not arrived. Cheap; any thread.
  void progress(int64_t operation, int64_t step);
  // Tells everybody why this rank fails; returns when it is on its way (at most 0.2 s).
  void fail(const FailureReport& report);
  // Asks who is behind `operation`, for an error after a deadline: "rank 3 has not entered it (last was
  // number 16)".
  std::string who_is_behind(int64_t operation, Deadline deadline);

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::cluster
