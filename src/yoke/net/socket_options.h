// What every connected socket of ours has switched on.
#pragma once

namespace yoke::net {

// Small frames leave at once; a dead machine is noticed within half a minute even without heartbeats. Buffer
// sizes are left to the kernel, which adapts them.
void set_connection_options(int fd);

}  // namespace yoke::net
