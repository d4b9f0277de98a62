// The job as one rank sees it: its identity, the other ranks, failure notification.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "yoke/cluster/failure.h"
#include "yoke/cluster/identity.h"
#include "yoke/cluster/session.h"

namespace yoke::cluster {

struct JoinOptions {
  double join_timeout = 60;  // seconds for all ranks to join; the launcher's value takes precedence
  double timeout = 300;      // seconds per operation
  std::string secret_file;   // across machines; empty: YOKE_SECRET_FILE, else the launcher's key
  bool insecure = false;     // no authentication: must be requested, logs a warning
  bool encrypt = false;
  // Folder for flight records after a failure; empty: YOKE_FLIGHT_DIR, else none.
  std::string flight_folder;
  // As in CoordinatorOptions. Told to the coordinator, wherever it is.
  std::vector<bool> expendable{};
  int late_ranks = 0;        // likewise
  std::string role{};        // take_role() from the start
  bool replaceable = false;  // as in Member
  // This program regroups after the loss of a rank. ConfigError if the job's coordinator is not elastic.
  bool elastic = false;
  int elastic_min = 1;              // if rank 0 hosts the coordinator
  std::function<void()> prepare{};  // as in Session
};

// Joins the job described by the environment. A world of one opens no connections. Throws ConfigError, Error
// with kRendezvous. The destructor leaves the job; if this rank hosts the coordinator it waits up to 5 s for
// the others.
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
  int life() const { return members()[static_cast<size_t>(rank())].life; }  // > 0: rejoined a running job
  Session& session();                                                       // requires !alone()
  net::Acceptor& acceptor();  // accepts data connections of peers
  const net::JobTicket& ticket() const;
  const std::shared_ptr<Failure>& failure() const { return failure_; }
  // Elastic jobs: Session::regroup(), after which rank(), size() and members() are those of the next epoch.
  // Requires that all communicators of this world are destroyed.
  void regroup(const std::string& why);
  // Elastic jobs, at the start of an epoch: if the last one ended because of a link, looks who reaches whom.
  // Collective. Throws CommError if a link is cut: regroup, without the ranks that then leave.
  void check_links();
  bool elastic() const { return options_.elastic && has_session(); }
  int epoch() const;  // 0: the first
  // Sets this rank's name in messages, beside its number: "parameter server 1", "stage 2".
  void take_role(const std::string& role);
  // Identical on all ranks, because all create communicators in the same order
  int next_communicator() { return communicators_++; }

 private:
  struct Parts;
  bool has_session() const;
  void take_place();
  Identity identity_;
  JoinOptions options_;
  std::shared_ptr<Failure> failure_;
  std::unique_ptr<Parts> parts_;
  int communicators_ = 0;
};

}  // namespace yoke::cluster
