// What each launcher says about this process, one function a launcher.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "yoke/cluster/identity_variables.h"

namespace yoke::cluster {

// One launcher's word. Complete when rank and world size are known and nothing is wrong.
struct Claim {
  explicit Claim(const char* launcher) : source(launcher) {}

  std::string source;
  std::string rank_name;   // the variable the rank came from
  std::string world_name;  // likewise
  std::optional<int> rank;
  std::optional<int> world_size;
  std::optional<int> local_rank;
  std::optional<int> local_world_size;
  std::optional<int> node_rank;
  std::optional<int> nodes;
  bool one_per_machine = false;  // as far as it tells: such a claim may number launchers, not ranks
  int generation = 0;
  std::string job_key;    // tells this job from others, the same on every machine
  std::string local_key;  // likewise on one machine; job_key where empty
  std::string endpoint;   // for several machines; empty: the launcher names none
  std::string endpoint_why;
  std::vector<std::string> endpoint_names;  // variables it came from
  std::string problem;                      // a sentence without its full stop
  std::vector<SeenVariable> uses;           // variables that are used when this claim wins, with the reason

  bool complete() const { return rank && world_size && problem.empty(); }
};

// In order of precedence, those that say anything at all.
std::vector<Claim> read_claims(Variables& variables);

// A process that all ranks of a local job descend from: the nearest ancestor that is an MPI launcher, else
// the parent.
int launcher_pid();

// Sixteen hexadecimal digits.
std::string short_hash(const std::string& text);

// "host:port" with brackets around IPv6 addresses.
std::string host_and_port(const std::string& host, int port);

}  // namespace yoke::cluster
