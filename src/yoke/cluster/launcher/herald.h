// Messages from the launcher of one machine to the coordinator on another.
#pragma once

#include <optional>

#include "yoke/cluster/failure.h"
#include "yoke/cluster/launcher/child_environment.h"

namespace yoke::cluster {

// Reports how a rank of this machine ended, which only its launcher knows. Takes at most a second. Does not
// throw: if the coordinator is unreachable or has already decided, the job ends in any case.
void tell_coordinator(const JobPlace& place, const FailureReport& report);

// The cause of failure of the job; empty if there is none or the coordinator is unreachable. Takes at most a
// second.
std::optional<FailureReport> ask_coordinator(const JobPlace& place, int world_size);

// Whether the job continues without this rank, as its program has told the coordinator. Takes at most a
// second. No, if the coordinator is unreachable.
bool ask_whether_expendable(const JobPlace& place, int rank);

// Whether the job continues without this rank of this machine, whose process is to be ended. False also if
// the coordinator is unreachable. Takes at most a second.
bool is_evicted(const JobPlace& place, int rank);

}  // namespace yoke::cluster
