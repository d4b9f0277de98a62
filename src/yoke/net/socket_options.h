// Options of every connected socket.
#pragma once

namespace yoke::net {

// No delay for small frames; a dead machine is detected within half a minute even without heartbeats. Buffer
// sizes are left to the kernel's auto-tuning.
void set_connection_options(int fd);

// Seconds since the peer's machine has acknowledged anything, while it has bytes to acknowledge: keepalive
// looks at idle connections only, and the kernel sends bytes again for a quarter of an hour. 0: nothing is in
// flight, or not a TCP connection. (TCP_USER_TIMEOUT would also end connections to peers that are alive and
// do not read for that long.)
double seconds_unacknowledged(int fd);

// Call it after the handshake. If the system uses BBR and the peer is near (round trip below 5 ms), selects
// cubic or reno: BBR mistakes the pauses of a computing rank for a slower link, and the round trip of an idle
// local link for that of a busy one, and then leaves a fifth of the bandwidth unused for a while. Distant
// peers keep the administrator's choice.
void suit_congestion_control(int fd);

}  // namespace yoke::net
