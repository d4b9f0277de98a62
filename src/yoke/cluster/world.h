// The job as one rank sees it: who am I, who are the others, how do we learn of failures.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "yoke/cluster/failure.h"
#include "yoke/cluster/identity.h"
#include "yoke/cluster/session.h"

namespace yoke::cluster {

struct JoinOptions {
  double join_timeout = 60;  // seconds for all ranks to come
  double timeout = 300;      // seconds an operation may take
  std::string secret_file;   // across machines; empty: YOKE_SECRET_FILE, else what the launcher handed down
  bool insecure = false;     // no proof of the key: must be asked for, warns
  bool encrypt = false;
  std::string
      flight_folder;  // where flight records go when an operation fails; empty: YOKE_FLIGHT_DIR, else nowhere
  // As in CoordinatorOptions, where rank 0 hosts it.
  std::vector<bool> expendable{};
  std::string role{};  // of this rank, for errors: "parameter server 1"
};

// Joins the job the environment describes. A world of one talks to nobody.
class World {
 public:
  World(const Identity& identity, const JoinOptions& options);
  ~World();

  int rank() const { return identity_.rank; }
  int size() const { return identity_.world_size; }
  const Identity& identity() const { return identity_; }
  const JoinOptions& options() const { return options_; }
  const std::vector<Member>& members() const;  // by rank
  bool alone() const { return size() == 1; }
  int life() const { return members()[static_cast<size_t>(rank())].life; }  // above 0: joined a running job
  Session& session();                                                       // requires !alone()
  net::Acceptor& acceptor();  // where peers of other machines (or tcp on this one) call
  const net::JobTicket& ticket() const;
  const std::shared_ptr<Failure>& failure() const { return failure_; }

 private:
  struct Parts;
  Identity identity_;
  JoinOptions options_;
  std::shared_ptr<Failure> failure_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace yoke::cluster
