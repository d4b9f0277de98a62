// Training steps measured for a lab by `yoke bench step`, in a process that loads LibTorch.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/lab.h"

namespace yoke::cli {

struct StepsToMeasure {
  std::string model;
  std::vector<int> batches;  // empty: the largest that fits
  std::string precision = "fp32";
  std::string recompute = "none";  // or several: "none,blocks"
  std::string device = "cpu";
  int threads = 0;
  int steps = 10;
  bool anatomy = false;
  std::vector<std::pair<std::string, std::string>> keys = {};  // of [model] and [train]
};

// Throws ConfigError for what the measuring process would refuse.
void check_steps(const StepsToMeasure& steps);

// Calls `take` with each row of `bench step`, also with those before a failure. Throws Error if the process
// failed.
void measure_steps(const Lab& lab, const StepsToMeasure& steps,
                   const std::function<void(nlohmann::json)>& take);

}  // namespace yoke::cli
