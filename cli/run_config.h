// All options of a run: the sections of a configuration file, each owned by its folder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "yoke/checkpoint/options.h"
#include "yoke/collab/options.h"
#include "yoke/compute/options.h"
#include "yoke/config/schema.h"
#include "yoke/data/options.h"
#include "yoke/engine/elastic_options.h"
#include "yoke/engine/options.h"
#include "yoke/metrics/options.h"
#include "yoke/models/options.h"
#include "yoke/optim/options.h"
#include "yoke/parallel/choices.h"
#include "yoke/parallel/membership.h"

namespace yoke::cli {

struct TrainSection {
  engine::LoopOptions loop;
  optim::OptimizerOptions optimizer;
  optim::ScheduleOptions schedule;
  compute::ComputeOptions compute;
};

struct RunConfig : parallel::Choices {
  models::ModelOptions model;
  data::DataOptions data;
  TrainSection train;
  engine::ElasticOptions elastic;
  collab::CollabOptions collab;
  checkpoint::CheckpointOptions checkpoint;
  metrics::OutOptions out;
};

// A configuration with the list of its keys. Not copyable: the schema refers to the values.
class Configuration {
 public:
  Configuration();
  Configuration(const Configuration&) = delete;
  Configuration& operator=(const Configuration&) = delete;

  // Reads `file` (if not empty), then the environment, then `overrides`, and checks that the values are
  // consistent. Throws ConfigError.
  void load(const std::string& file, const std::vector<config::Override>& overrides);

  RunConfig values;
  config::Schema schema;
};

// out.dir, or the default folder of the run.
std::string run_folder(const RunConfig& config);

// How a rank of such a run joins the others. Refers to `config`.
parallel::JoinRequest join_request(const RunConfig& config);

}  // namespace yoke::cli
