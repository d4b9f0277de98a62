// `yoke run --requeue`: gives the Slurm job of this launcher back to the queue after it was asked to stop.
#pragma once

#include <signal.h>

#include <functional>
#include <optional>
#include <string>

#include "yoke/cluster/launcher/guardian.h"

namespace yoke::cluster {

struct SlurmJob {
  std::string id;
  bool whole = true;       // it consists of one machine
  bool first = false;      // its first launcher, which requeues it
  std::string scontrol{};  // path; of the first launcher only
};

// From Slurm's variables, read with `variable`. Throws ConfigError outside of Slurm, and on the first
// launcher if there is no scontrol.
SlurmJob find_slurm_job(const std::function<std::optional<std::string>(const std::string&)>& variable);

// Slurm announces the end of a job by one of them; a user interrupts it with others.
bool announces_the_end(int signal);

// Runs `scontrol requeue ID`. `mask`: signals that are blocked in it. Throws ConfigError with what it printed
// if it fails, or if it does not end within `seconds`.
void requeue(const SlurmJob& job, const sigset_t& mask, const Guardian& guardian, double seconds = 30);

}  // namespace yoke::cluster
