// Turns an exception of a backend into the user's error and the job's failure report.
#pragma once

#include <exception>
#include <string>

#include "yoke/base/deadline.h"
#include "yoke/comm/queue/queued_communicator.h"

namespace yoke::comm {

// Reports the failure to the job (once), waits briefly for a better root cause than a closed connection,
// writes the flight record, and returns the CommError for waiters: operation, group, cause. `peer`: of a
// transfer. Takes up to about 0.4 s, after a deadline up to 2 s more.
std::exception_ptr explain_failure(std::exception_ptr thrown, const Descriptor& descriptor,
                                   const GroupInfo& group, const std::string& backend, const JobLink& job,
                                   const Deadline& deadline, int peer = -1);

}  // namespace yoke::comm
