// Configuration keys that would have no effect in a run.
//
// A key that was set has an effect or is refused by name, with the reason. Built-in values are never refused,
// nor is a file that repeats them: config.toml of a run contains every key.
#pragma once

#include <string>
#include <vector>

#include "cli/run_config.h"

namespace yoke::cli {

struct IdleKey {
  const config::Entry* entry = nullptr;
  std::string why;
  // Logged instead of refused: a file may serve one rank and many, and other choices given on the command
  // line; a sweep over ps.policy sets keys of all rules.
  bool tolerated = false;
};

// Keys without an effect on `ranks` workers (replicas, if they are threads), in schema order. Refers to the
// configuration.
std::vector<IdleKey> idle_keys(const Configuration& configuration, int ranks);

// Throws ConfigError that names the refused ones. `tell`: logs the tolerated ones.
void refuse_idle_keys(const Configuration& configuration, int ranks, bool tell);

// Resets tolerated keys that are idle on any number of ranks to their built-in values: config.toml of the run
// must be accepted as well, where everything comes from a file. Turns train.evaluate off if there is no test
// file.
void reset_idle_keys(Configuration& configuration);

// The test files that train.evaluate would need, if none of them exists; empty: it can evaluate, or is off.
std::vector<std::string> missing_test_files(const RunConfig& config);

}  // namespace yoke::cli
