// The artificial delays of a worker: [slowdown].
#pragma once

#include "yoke/parallel/sync/servers/setup.h"
#include "yoke/plan/policies/delay_law.h"

namespace yoke::parallel {

struct WorkerDelays {
  // Of the worker with this messenger. Throws ConfigError for invalid laws or workers.
  explicit WorkerDelays(const PsSetup& setup);

  plan::DelayStream compute;
  plan::DelayStream link;  // of each gradient on its way
};

}  // namespace yoke::parallel
