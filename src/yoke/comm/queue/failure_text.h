// Turns what a backend threw into the error a user reads and the report the job gets.
#pragma once

#include <exception>
#include <string>

#include "yoke/base/deadline.h"
#include "yoke/comm/queue/queued_communicator.h"

namespace yoke::comm {

// Tells the job (once), waits a moment for a better root cause than a closed connection, writes the flight
// record, and returns the CommError to hand to whoever waits: what was called, on which group, and why it
// failed. `peer`: of a transfer.
std::exception_ptr explain_failure(std::exception_ptr thrown, const Descriptor& descriptor,
                                   const GroupInfo& group, const std::string& backend, const JobLink& job,
                                   const Deadline& deadline, int peer = -1);

}  // namespace yoke::comm
