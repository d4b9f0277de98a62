// Ranks that have one device between them. Part of the module only.
#pragma once

#include <string>

#include "yoke/comm/nccl/nccl.h"

namespace yoke::comm::nccl {

// NCCL refuses two ranks on one device, unless it takes them for ranks of different machines: those that
// share theirs get a machine's name of their own (NCCL_HOSTID, unless it is set). They take turns on the
// device, and what they tell each other goes through the host, which the first of them warns of. Collective;
// before the first group forms. `key`: of the exchange.
void allow_sharing(const NcclSetup& setup, const std::string& key, Deadline deadline);

}  // namespace yoke::comm::nccl
