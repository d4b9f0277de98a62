// verify() for layouts that are pipelines.
#pragma once

#include "yoke/comm/communicator.h"
#include "yoke/engine/verify_trainee.h"

namespace yoke::engine {

// One rank. Schedules that flush: beside one device that accumulates the same micro-batches, compared after
// every step. pipedream and 2bw: beside a replay of their staleness (parallel/pipeline/replay.h), losses
// compared after every step and weights at the end; `gradient` is then the sum of all updates,
// (last - first weights) / lr.
void train_stage(VerifyBench& bench, comm::Communicator& comm);

}  // namespace yoke::engine
