// Several ranks on one device. Part of the module only.
#pragma once

#include <string>

#include "yoke/comm/nccl/nccl.h"

namespace yoke::comm::nccl {

// NCCL refuses two ranks on the same device unless they appear to be on different machines: ranks that share
// a device get distinct NCCL_HOSTIDs (unless it is set). They time-share the device and their data goes
// through the host; the first of them logs a warning. Collective; call it before the first group forms.
// `key`: for the exchange.
void allow_sharing(const NcclSetup& setup, const std::string& key, Deadline deadline);

}  // namespace yoke::comm::nccl
