#include "yoke/cluster/identity.h"

#include <fmt/core.h>
#include <unistd.h>

#include "yoke/base/error.h"
#include "yoke/cluster/identity_sources.h"

namespace yoke::cluster {
namespace {

// A launcher that another launcher started once per machine inherits that one's numbers: they are correct,
// but number launchers.
bool numbers_launchers(const Claim& outer, const Claim& inner) {
  if (!outer.world_size || *outer.world_size > *inner.world_size) return false;
  bool one_each = outer.one_per_machine || outer.local_world_size.value_or(1) == 1 || outer.world_size == 1;
  if (inner.nodes) return one_each && *outer.world_size == *inner.nodes;
  // mpirun inside a Slurm job starts its daemons with srun.
  return outer.source == "slurm" && outer.one_per_machine && *outer.world_size < *inner.world_size;
}

bool agree(const Claim& winner, const Claim& other) {
  bool same_rank = !other.rank || *other.rank == *winner.rank;
  bool same_world = !other.world_size || *other.world_size == *winner.world_size;
  return same_rank && same_world;
}

std::string spoken(const Claim& claim) {
  std::string text;
  if (claim.rank) text += fmt::format("{}={}", claim.rank_name, *claim.rank);
  if (claim.world_size)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", claim.world_name, *claim.world_size);
  return fmt::format("{} says {}", claim.source, text);
}

void check_conflict(const Claim& winner, const Claim& other) {
  // A pod index and PMIx flags without a world size are not ranks: something else started this process. PMIx
  // does not say how many there are, so ranks and launchers cannot be distinguished.
  if (other.source == "kubernetes" || other.source == "kubeflow" || other.source == "pmix") return;
  if (agree(winner, other) || numbers_launchers(other, winner)) return;
  throw ConfigError(
      "two launchers disagree about the rank of this process: {}, but {}. Unset the variables of the "
      "launcher that did not start it (`env -u {} …`); `yoke env` shows all of them.",
      spoken(winner), spoken(other), other.rank ? other.rank_name : other.world_name);
}

// Index of the winning claim, -1 if there are none. Throws the first problem if no claim is complete.
int choose(const std::vector<Claim>& claims) {
  for (size_t i = 0; i < claims.size(); ++i) {
    if (claims[i].complete()) return static_cast<int>(i);
    // Our own variables must be valid, whatever else is set.
    if (claims[i].source == "yoke") break;
  }
  for (const Claim& claim : claims) {
    if (!claim.problem.empty()) throw ConfigError("{}.", claim.problem);
  }
  return -1;
}

// A launcher that agrees may provide what the winner does not.
void complete_from(Claim& winner, const Claim& other) {
  if (!other.complete() || !agree(winner, other)) return;
  if (!winner.local_world_size && other.local_world_size) {
    winner.local_rank = other.local_rank;
    winner.local_world_size = other.local_world_size;
    winner.uses.insert(winner.uses.end(), other.uses.begin(), other.uses.end());
  }
  if (!winner.node_rank) winner.node_rank = other.node_rank;
  if (winner.job_key.empty()) winner.job_key = other.job_key;
  if (winner.endpoint.empty()) {
    winner.endpoint = other.endpoint;
    winner.endpoint_why = other.endpoint_why;
    winner.endpoint_names = other.endpoint_names;
  }
}

void check_ranges(const Claim& claim, const Identity& self) {
  if (self.rank >= self.world_size) {
    throw ConfigError("{}={} is not a rank of {}={}: expected 0..{}. Each process needs its own rank.",
                      claim.rank_name, self.rank, claim.world_name, self.world_size, self.world_size - 1);
  }
  if (self.local_world_size > self.world_size || self.local_rank >= self.local_world_size) {
    throw ConfigError(
        "{} says local rank {} of {} on this machine, but there are {} ranks in total. Check the launcher's "
        "variables with `yoke env`.",
        claim.source, self.local_rank, self.local_world_size, self.world_size);
  }
}

void fill_places(const Claim& claim, bool unix_coordinator, Identity& self) {
  self.rank = *claim.rank;
  self.world_size = *claim.world_size;
  bool together = !claim.local_world_size && unix_coordinator;
  self.local_world_size = together ? self.world_size : claim.local_world_size.value_or(1);
  self.local_rank = together ? self.rank : claim.local_rank.value_or(0);
  check_ranges(claim, self);
  self.node_rank = claim.node_rank.value_or(self.rank / self.local_world_size);
}

[[noreturn]] void endpoint_missing(const Claim& claim) {
  std::string flag;
  if (claim.source == "openmpi") flag = " (`mpirun -x YOKE_COORDINATOR=HOST:PORT …`)";
  if (claim.source == "mpich") flag = " (`mpirun -genv YOKE_COORDINATOR HOST:PORT …`)";
  throw ConfigError(
      "{} has no rendezvous address for several machines{}. Set YOKE_COORDINATOR=HOST:PORT (the machine of "
      "rank 0 and a free port) for every rank{}.",
      claim.source, claim.endpoint_why.empty() ? "" : " (" + claim.endpoint_why + ")", flag);
}

void fill_endpoint(Variables& variables, const Claim& claim, const std::optional<std::string>& given,
                   Identity& self) {
  // Others may join the one rank of a launcher.
  const bool stays_alone = self.world_size == 1 && (!given || claim.source != "yoke");
  if (stays_alone) {
    variables.ignored("YOKE_COORDINATOR", "not needed: there is one rank");
  } else if (given) {
    self.endpoint = *given;
    variables.used("YOKE_COORDINATOR", "rendezvous address");
  } else if (self.local_world_size == self.world_size && claim.source != "yoke") {
    std::string key = claim.source + ";" + (claim.local_key.empty() ? claim.job_key : claim.local_key);
    self.endpoint = fmt::format("unix:@yoke-{}-{}", ::getuid(), short_hash(key));
    if (claim.source == "torchrun") variables.used("MASTER_PORT", "identifies this job");
  } else if (!claim.endpoint.empty()) {
    self.endpoint = claim.endpoint;
    for (const std::string& name : claim.endpoint_names) variables.used(name, claim.endpoint_why);
  } else {
    endpoint_missing(claim);
  }
}

std::string job_id_of(const Claim& claim, const Identity& self) {
  if (claim.source == "yoke" && !claim.job_key.empty()) return claim.job_key;
  return claim.source + "-" + short_hash(claim.job_key + ";" + self.endpoint);
}

void explain_others(Variables& variables, const std::vector<Claim>& claims, const Claim& winner) {
  for (const Claim& other : claims) {
    std::string why = agree(winner, other)
                          ? fmt::format("{} says the same and takes precedence", winner.source)
                          : "it numbers launchers, one per machine";
    for (const SeenVariable& use : other.uses) variables.ignored(use.name, why);
  }
}

}  // namespace

Identity identify(const Lookup& lookup) {
  Variables variables(lookup);
  Identity self;
  std::optional<std::string> coordinator = variables.text("YOKE_COORDINATOR");
  self.error_file = variables.text("TORCHELASTIC_ERROR_FILE").value_or("");
  variables.used("TORCHELASTIC_ERROR_FILE", "file for fatal errors, read by torchrun");
  std::vector<Claim> claims = read_claims(variables);
  int chosen = choose(claims);
  if (chosen < 0) {
    self.variables = variables.take("set without a launcher's rank");
    return self;
  }
  Claim winner = claims[static_cast<size_t>(chosen)];
  for (size_t i = 0; i < claims.size(); ++i) {
    if (static_cast<int>(i) == chosen) continue;
    check_conflict(winner, claims[i]);
    complete_from(winner, claims[i]);
  }
  for (const SeenVariable& use : winner.uses) variables.used(use.name, use.why);
  explain_others(variables, claims, winner);

  self.source = winner.source;
  fill_places(winner, coordinator && coordinator->rfind("unix:", 0) == 0, self);
  fill_endpoint(variables, winner, coordinator, self);
  self.generation = winner.generation;
  self.job_id = job_id_of(winner, self);
  bool ours = winner.source == "yoke" && !winner.job_key.empty();
  self.hosts_coordinator = !ours && self.rank == 0 && self.world_size > 1;
  self.variables = variables.take(winner.source + " does not need it");
  return self;
}

}  // namespace yoke::cluster
