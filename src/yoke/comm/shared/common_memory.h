// Memory that the ranks of a group use as one.
//
// It counts its users; the rank that made it keeps it until none is left, however the others end.
#pragma once

#include <memory>

#include "yoke/comm/shared/address.h"

namespace yoke::comm::shared {

// Zeroed memory of this rank for `users` ranks, of which it is one. `place`: for the others.
Memory make_common(const std::shared_ptr<AddressSpace>& space, size_t bytes, int users, Location& place);

// The same on another rank; `bytes` as it was made with.
Memory open_common(const std::shared_ptr<AddressSpace>& space, const Location& place, size_t bytes);

}  // namespace yoke::comm::shared
