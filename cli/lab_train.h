// A training run of a lab: `yoke train` with settings of the lab's own, checked before anything starts.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/lab.h"
#include "cli/lab_job.h"
#include "yoke/base/error.h"
#include "yoke/metrics/record.h"

namespace yoke::cli {

struct TrainedRun {
  std::vector<metrics::Record> records;
  nlohmann::json summary;
};

// The end of a run whose loss or gradients are not finite: a result, not a failure.
class Diverged : public Error {
 public:
  explicit Diverged(const std::string& text) : Error(ExitCode::kUsage, text) {}
};

class LabTraining {
 public:
  using Settings = std::vector<std::pair<std::string, std::string>>;  // by key; out.dir is `name`

  // Throws ConfigError where the ranks would refuse it. No checkpoints, nothing printed.
  LabTraining(const Lab& lab, const std::string& file, const std::string& name, int ranks,
              const Settings& settings);

  // Throws Diverged, or Error if the run fails otherwise.
  TrainedRun run() const;
  const RunConfig& config() const { return job_.config; }

 private:
  std::string name_;
  std::filesystem::path folder_;
  LabJob job_;
};

// Writes a configuration of the lab's own; `file` instead, if it is not empty.
std::string recipe_of(const Lab& lab, const std::string& file, const std::string& toml);

// Mean loss of the last tenth of the records.
double end_loss(const std::vector<metrics::Record>& records);

}  // namespace yoke::cli
