// From the launcher of one machine to the coordinator on another.
#pragma once

#include <optional>

#include "yoke/cluster/failure.h"
#include "yoke/cluster/launcher/child_environment.h"

namespace yoke::cluster {

// Tells how a rank of this machine ended, which only its launcher knows. Waits a second at most; a
// coordinator that cannot be reached, or has decided already, is no error: the job ends in any case.
void tell_coordinator(const JobPlace& place, const FailureReport& report);

// Why the job fails, where the coordinator knows; nothing while all is well, or when it cannot be reached.
// Waits a second at most.
std::optional<FailureReport> ask_coordinator(const JobPlace& place, int world_size);

}  // namespace yoke::cluster
