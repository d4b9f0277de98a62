// Memory shared by the ranks of a group.
//
// It counts its users; the rank that allocated it keeps it until none is left, even if others die.
#pragma once

#include <memory>

#include "yoke/comm/shared/address.h"

namespace yoke::comm::shared {

// Allocates zeroed memory for `users` ranks including this one; sets `place` for the others. Throws
// CommError.
Memory make_common(const std::shared_ptr<AddressSpace>& space, size_t bytes, int users, Location& place);

// Maps it on another rank; `bytes` as passed to make_common(). Throws CommError.
Memory open_common(const std::shared_ptr<AddressSpace>& space, const Location& place, size_t bytes);

}  // namespace yoke::comm::shared
