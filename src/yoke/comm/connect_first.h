// A communicator of some ranks of a job, where others do something else.
#pragma once

#include "yoke/comm/connect.h"

namespace yoke::comm {

// The first `ranks` ranks of the job. Collective over them; otherwise as connect(). Not with mpi, which
// connects all: ConfigError.
std::unique_ptr<Communicator> connect_first(cluster::World& world, int ranks,
                                            const ConnectOptions& options = {});

}  // namespace yoke::comm
