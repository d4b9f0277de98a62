// Reads the variables of each launcher, one function per launcher.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "yoke/cluster/identity_variables.h"

namespace yoke::cluster {

// What one launcher says. Complete if rank and world size are known and there is no problem.
struct Claim {
  explicit Claim(const char* launcher) : source(launcher) {}

  std::string source;
  std::string rank_name;   // variable of the rank
  std::string world_name;  // variable of the world size
  std::optional<int> rank;
  std::optional<int> world_size;
  std::optional<int> local_rank;
  std::optional<int> local_world_size;
  std::optional<int> node_rank;
  std::optional<int> nodes;
  bool one_per_machine = false;  // seems to start one process per machine: may number launchers, not ranks
  int generation = 0;
  std::string job_key;    // distinguishes this job from others, identical on all machines
  std::string local_key;  // likewise on one machine; empty: job_key
  std::string endpoint;   // for several machines; empty: not set by the launcher
  std::string endpoint_why;
  std::vector<std::string> endpoint_names;  // variables it came from
  std::string problem;                      // a sentence without its full stop
  std::vector<SeenVariable> uses;           // variables used if this claim wins, with the reason

  bool complete() const { return rank && world_size && problem.empty(); }
};

// Claims of all launchers that set anything, in order of precedence.
std::vector<Claim> read_claims(Variables& variables);

// Common ancestor of all ranks of a local job: the nearest ancestor that is an MPI launcher, else the parent.
int launcher_pid();

// 16 hexadecimal digits.
std::string short_hash(const std::string& text);

// "host:port", with brackets around IPv6 addresses.
std::string host_and_port(const std::string& host, int port);

}  // namespace yoke::cluster
