#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/command_line.h"

namespace yoke::cli {

// yoke bench scaling: one job per number of ranks, and a comparison of their results.
int bench_scaling(const CommandLine& line);

struct ScalingCell {
  std::string model;
  int64_t batch = 0;  // per replica
  std::string precision = "fp32";
  std::string bucket = "25MB";
};

// Throws ConfigError for what the ranks would refuse. Options and keys are those of `line`. Gives the number
// of replicas.
int check_scaling(const CommandLine& line, const ScalingCell& cell, int nproc);
// One job: the row of the command without what compares it with others. Rank 0 leaves its figures in
// `result`. Throws Error if the ranks fail.
nlohmann::json measure_scaling(const CommandLine& line, const ScalingCell& cell, int nproc,
                               const std::filesystem::path& result);

// Where the median step of such a row goes; the four add up to it.
struct StepTime {
  double compute = 0;
  double communication = 0;  // what the step waits for it
  double waiting = 0;        // for slower ranks; in a pipeline bubbles and messages, which are not told apart
  double undivided = 0;      // all of it, where computing was not measured: tensor parallelism
};
StepTime step_time(const nlohmann::json& row);

}  // namespace yoke::cli
