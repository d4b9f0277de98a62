// Loss and stop signals of one step, reduced over ranks.
#pragma once

#include "yoke/comm/communicator.h"
#include "yoke/parallel/strategy.h"

namespace yoke::parallel {

// Losses are summed and divided by `replicas`: the losses of ranks that hold parts of one replica add up. The
// stop signal is the largest that a rank has received, 0 if none has. Collective. `device`: of the loss.
StepNews reduce_news(const StepNews& here, comm::Communicator& comm, torch::Device device, double replicas);

}  // namespace yoke::parallel
