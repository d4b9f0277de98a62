// Configuration keys that would have no effect in a run.
//
// A key that somebody set has an effect or is refused by name, with the reason. Built-in values are never
// refused, nor is a file that repeats them: config.toml of a run holds every key.
#pragma once

#include <string>
#include <vector>

#include "cli/run_config.h"

namespace yoke::cli {

struct IdleKey {
  const config::Entry* entry = nullptr;
  std::string why;
  // Told, not refused: a file serves one rank and many, and other choices that are typed over it; a sweep
  // over ps.policy names keys of all rules.
  bool tolerated = false;
};

// Keys without an effect on `ranks` workers (replicas, where they are threads), in the order of the schema.
// Points into the configuration.
std::vector<IdleKey> idle_keys(const Configuration& configuration, int ranks);

// Throws ConfigError that names those that are refused. `tell`: logs the tolerated ones.
void refuse_idle_keys(const Configuration& configuration, int ranks, bool tell);

// Gives tolerated keys that are idle on any number of ranks their built-in values: config.toml of the run
// must be accepted as well, where everything comes from a file.
void reset_idle_keys(Configuration& configuration);

// Throws ConfigError where `command` reads none of these keys, or sets one itself.
void refuse_unread_keys(const std::string& command, const std::vector<config::Override>& typed);

}  // namespace yoke::cli
