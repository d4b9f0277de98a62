// Every option of a run: the sections of a configuration file, each owned by its folder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "yoke/checkpoint/options.h"
#include "yoke/compute/options.h"
#include "yoke/config/schema.h"
#include "yoke/data/options.h"
#include "yoke/engine/options.h"
#include "yoke/metrics/options.h"
#include "yoke/models/options.h"
#include "yoke/optim/options.h"
#include "yoke/parallel/ddp/options.h"
#include "yoke/parallel/options.h"
#include "yoke/parallel/pipeline/options.h"
#include "yoke/ps/options.h"

namespace yoke::cli {

struct TrainSection {
  engine::LoopOptions loop;
  optim::OptimizerOptions optimizer;
  optim::ScheduleOptions schedule;
  compute::ComputeOptions compute;
};

struct RunConfig {
  models::ModelOptions model;
  data::DataOptions data;
  TrainSection train;
  parallel::ParallelOptions parallel;
  DdpOptions ddp;
  ps::PsOptions ps;
  ps::SlowdownOptions slowdown;
  parallel::PipelineOptions pipeline;
  std::vector<int> stage_replicas;  // of a plan; not a key
  checkpoint::CheckpointOptions checkpoint;
  metrics::OutOptions out;
};

// What a rank of `ranks` is besides a rank, for errors: "pipeline stage 1"; empty where it is one of many
// alike, or where a plan says.
std::string stage_role(const RunConfig& config, int rank, int ranks);

// A configuration together with the list of its keys. Not copyable: the schema points into the values.
class Configuration {
 public:
  Configuration();
  Configuration(const Configuration&) = delete;
  Configuration& operator=(const Configuration&) = delete;

  // Reads `file` (when not empty), then the environment, then `overrides`, and checks values against each
  // other. Throws ConfigError.
  void load(const std::string& file, const std::vector<config::Override>& overrides);

  RunConfig values;
  config::Schema schema;
};

}  // namespace yoke::cli
