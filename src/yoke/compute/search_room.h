// Whether cuDNN's search may be bounded (search_room_cuda.h).
#pragma once

namespace yoke::compute {

// Thread-safe. From now on searches have no bound: where several threads of this process compute on a device,
// the bound of one would fail allocations of the others.
void leave_searches_unbounded();
bool searches_are_bounded();

}  // namespace yoke::compute
