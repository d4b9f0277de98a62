// The only place that reads environment variables (except NO_COLOR and TERM in base/terminal).
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "yoke/config/schema.h"
#include "yoke/net/connection.h"

namespace yoke::cluster {

// YOKE_TRAIN__LR=0.1 as {"train.lr", "0.1", "YOKE_TRAIN__LR"}, sorted by name.
std::vector<config::Override> config_overrides();

// Folder for cached measurements: $XDG_CACHE_HOME/yoke, else ~/.cache/yoke, else a per-user folder in /tmp.
// Not created.
std::filesystem::path cache_folder();

// The value of one variable; empty counts as unset.
std::optional<std::string> environment_variable(const std::string& name);

// Like environment_variable(), and removes it: child processes and /proc/PID/environ no longer show it.
std::optional<std::string> take_out_of_environment(const std::string& name);

// All variables, for the environment of a child.
std::map<std::string, std::string> environment();

// The job's key as passed by `yoke run` (YOKE_JOB_KEY). The first call removes it from the environment; later
// calls return the same. Throws ConfigError if it is invalid.
std::optional<net::Secret> inherited_secret();

// Settings passed by the launcher: protection of connections (YOKE_PROTECTION: integrity, encrypted, none)
// and the join timeout (YOKE_JOIN_TIMEOUT, seconds). Throw ConfigError.
std::optional<net::Protection> inherited_protection();
std::optional<double> inherited_join_timeout();
// The command line of this job's launcher, as typed (YOKE_COMMAND).
std::optional<std::string> inherited_command();

// Arms the faults of YOKE_FAULT (base/fault.h) in this process and logs a warning; rank -1: a launcher.
// Throws ConfigError for invalid rules.
void arm_faults(int rank, int attempt);

}  // namespace yoke::cluster
