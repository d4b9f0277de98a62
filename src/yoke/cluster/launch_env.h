// What the environment says. The only place that reads it (but for NO_COLOR and TERM in base/terminal).
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

// Where measured choices are remembered between runs: $XDG_CACHE_HOME/yoke, else ~/.cache/yoke, else a folder
// of this user below /tmp. Not created.
std::filesystem::path cache_folder();

// One variable; absent and empty are the same.
std::optional<std::string> environment_variable(const std::string& name);

// Likewise, and removes it: neither children nor /proc/PID/environ show it any more.
std::optional<std::string> take_out_of_environment(const std::string& name);

// Every variable, for the environment of a child.
std::map<std::string, std::string> environment();

// The job's key as `yoke run` handed it down (YOKE_JOB_KEY). The first call takes it out of the environment;
// later calls give the same. Throws ConfigError when it is no key.
std::optional<net::Secret> inherited_secret();

// How the launcher protects this job's connections (YOKE_PROTECTION: integrity, encrypted, none), and how
// long it waits for all ranks (YOKE_JOIN_TIMEOUT, seconds). Throw ConfigError.
std::optional<net::Protection> inherited_protection();
std::optional<double> inherited_join_timeout();
// The command that started this job's launcher, as it was typed (YOKE_COMMAND).
std::optional<std::string> inherited_command();

}  // namespace yoke::cluster
