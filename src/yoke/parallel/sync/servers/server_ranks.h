// Parameter servers as ranks of a job: behind the workers, without LibTorch, or inside the first workers
// (ps.place).
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "yoke/cluster/world.h"
#include "yoke/comm/messenger.h"
#include "yoke/optim/options.h"
#include "yoke/parallel/choices.h"
#include "yoke/plan/policies/rule.h"
#include "yoke/ps/places.h"
#include "yoke/ps/replica_ranks.h"
#include "yoke/ps/server.h"

namespace yoke::parallel {

// How `workers` ranks make up replicas, which are the workers of a rule. Throws ConfigError where the axes of
// the mesh do not multiply to them.
ps::ReplicaRanks replica_ranks(const Choices& choices, int workers);

// The rule that the configuration names. Throws ConfigError.
plan::PolicyOptions policy_of(const Choices& choices, int workers);

// Ranks of workers in a world of that size. Throws ConfigError where servers and workers do not go together.
int workers_beside_servers(const Choices& choices, int world_size);

// Copies of each range on other servers (ps.replicas). Throws ConfigError where there cannot be that many.
int replicas_of(const Choices& choices);

// Where servers or workers may join (ps.max_servers, ps.max_workers): places for them; places of servers are
// homes for parameters, too. `workers`: ranks at the start. Throws ConfigError where they cannot.
ps::Places places_of(const Choices& choices, int workers);
// The servers at the start, where others may join; otherwise 0 (ServerOptions::at_start).
int servers_at_start(const Choices& choices);
// How many ranks may join.
int late_ranks(const Choices& choices, int workers);

// Ranks of a job with that many workers.
int ranks_with_servers(const Choices& choices, int workers);

// Where the servers of the start are, if they have copies: ServerOptions::machines. `workers`: ranks at the
// start.
std::vector<std::string> machines_of_servers(const Choices& choices, const cluster::World& world,
                                             int workers);

// Of each server. Throws ConfigError.
ps::ServerOptions server_options(const Choices& choices, const optim::OptimizerOptions& optimizer,
                                 int workers);

// Whether workers push and pull only the rows that a minibatch uses, if the model has such (ps.sparse).
// Throws ConfigError where that was asked for and other options do not allow it.
bool uses_sparse_tables(const Choices& choices, const optim::OptimizerOptions& optimizer);

// By rank: whether the job continues without it.
std::vector<bool> expendable_ranks(const Choices& choices, int world_size);

// A server in this process. The messenger's thread serves; it ends with this object.
class HostedServer {
 public:
  HostedServer(const Choices& choices, const optim::OptimizerOptions& optimizer, std::filesystem::path out,
               cluster::World& world, std::unique_ptr<comm::Messenger> messenger, int workers);
  ~HostedServer();
  // Serves until all workers have left, then ends. Once. Throws CommError.
  void finish();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// Servers as threads of this process, for workers that are threads too.
class LocalServers {
 public:
  LocalServers(const Choices& choices, const optim::OptimizerOptions& optimizer, int workers);
  ~LocalServers();
  comm::Messenger& messenger(int worker);
  // Once all workers have left. Throws CommError.
  void finish();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// Serves until all workers have left: the whole life of a server's rank.
void serve(const Choices& choices, const optim::OptimizerOptions& optimizer,
           const std::filesystem::path& out);

}  // namespace yoke::parallel
