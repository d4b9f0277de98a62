// The parameter servers of `yoke train --parallel.sync ps`: ranks behind the workers, without LibTorch, or
// inside the first workers (ps.place).
#pragma once

#include "cli/command_line.h"
#include "cli/run_config.h"
#include "yoke/cluster/launcher/launcher.h"
#include "yoke/cluster/world.h"
#include "yoke/comm/messenger.h"
#include "yoke/plan/policies/rule.h"
#include "yoke/ps/server.h"

namespace yoke::cli {

bool uses_servers(const RunConfig& config);

// The rule that the configuration names. Throws ConfigError.
plan::PolicyOptions policy_of(const RunConfig& config, int workers);

// Workers in a world of that size. Throws ConfigError where servers and workers do not go together.
int worker_count(const RunConfig& config, int world_size);

// Of each server. Throws ConfigError.
ps::ServerOptions server_options(const RunConfig& config, int workers);

// The job of line.train.nproc workers and the servers on this machine. Throws ConfigError.
cluster::LaunchOptions server_job(const CommandLine& line, const RunConfig& config);

// By rank: whether the job goes on without it.
std::vector<bool> expendable_ranks(const RunConfig& config, int world_size);

// Workers and servers alike.
cluster::World join_with_servers(const RunConfig& config);

// Whether this rank of a launcher's world is a server.
bool is_server_rank(const RunConfig& config);

// A server in this process. The messenger's thread serves; it ends with this object.
class HostedServer {
 public:
  HostedServer(const RunConfig& config, cluster::World& world, std::unique_ptr<comm::Messenger> messenger);
  ~HostedServer();
  // Serves until all workers have left, then ends. Once. Throws CommError.
  void finish();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// Serves until all workers have left.
int run_server(const RunConfig& config);

}  // namespace yoke::cli
