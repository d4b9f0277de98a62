// The data sets of a run. An elastic job opens each of them once and uses it in all epochs: reading one can
// take far longer than a step, and all other ranks would wait for it.
#pragma once

#include <map>
#include <memory>

#include "cli/run_config.h"
#include "yoke/data/dataset.h"

namespace yoke::cli {

class DataSets {
 public:
  // `config` must outlive it.
  explicit DataSets(const RunConfig& config) : config_(config) {}

  // Opens what the configured model will need, before this process joins a job. Errors are left to open(),
  // when there is a job to hear of them.
  void prepare();
  // As data::open(). Throws ConfigError.
  std::shared_ptr<const data::Dataset> open(data::Split split, const SampleSpec& wanted);

 private:
  const RunConfig& config_;
  std::map<data::Split, std::shared_ptr<const data::Dataset>> kept_;
};

}  // namespace yoke::cli
