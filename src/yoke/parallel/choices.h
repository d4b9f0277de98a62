// All configuration about how work is distributed over ranks. Each part is described where it belongs.
#pragma once

#include <vector>

#include "yoke/parallel/common/ddp/options.h"
#include "yoke/parallel/options.h"
#include "yoke/parallel/placement/stage/options.h"
#include "yoke/parallel/sync/average/options.h"
#include "yoke/parallel/sync/hybrid/options.h"
#include "yoke/ps/options.h"
#include "yoke/ps/sandblaster/options.h"

namespace yoke::parallel {

struct Choices {
  ParallelOptions parallel;
  DdpOptions ddp;
  AverageOptions average;
  HybridOptions hybrid;
  ps::PsOptions ps;
  ps::sandblaster::PortionOptions sandblaster;
  ps::SlowdownOptions slowdown;
  PipelineOptions pipeline;
  std::vector<int> stage_replicas;  // of a plan; not a configuration key
  std::vector<int> node_parts;      // of a partition, by node of the model's graph; not a configuration key
  int spares = 0;                   // last ranks, which hold no part of the model; not a configuration key
};

}  // namespace yoke::parallel
