// What every connected socket of ours has switched on.
#pragma once

namespace yoke::net {

// Small frames leave at once; a dead machine is noticed within half a minute even without heartbeats. Buffer
// sizes are left to the kernel, which adapts them.
void set_connection_options(int fd);

// For a connection that has been through its handshake. Where the system's congestion control is BBR and the
// peer is near (a round trip below 5 ms), chooses cubic or reno instead: BBR takes the pauses of a rank that
// computes for a slower link, and the round trip of an idle local link for that of a busy one, and then
// leaves a fifth of the link unused for a while. Far peers keep what the administrator chose.
void suit_congestion_control(int fd);

}  // namespace yoke::net
