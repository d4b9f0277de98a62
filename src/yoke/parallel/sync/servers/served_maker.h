// Places a model whose replicas are workers of parameter servers.
#pragma once

#include <memory>

#include "yoke/parallel/common/one_device.h"
#include "yoke/parallel/maker.h"
#include "yoke/parallel/sync/servers/setup.h"

namespace yoke::parallel {

// Of a worker: every rank of the job, or every replica where it lies in parts.
PsSetup served_setup(const MakeOptions& options);

// Replicas in parts: whatever places one replica on its ranks, and servers between replicas. Requires links
// to the servers and to all other ranks of workers. Collective.
std::shared_ptr<Maker> make_served_parts(Kit& kit, const MakeOptions& options, OneDeviceOptions device);

}  // namespace yoke::parallel
