// Signals that ask a run to save and stop, from users, launchers, and schedulers before a time limit.
#pragma once

#include <csignal>

namespace yoke {

constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};

// Whether a second one means "immediately". The others are warnings that schedulers and launchers may repeat
// (SIGXCPU comes every second).
constexpr bool is_urgent(int signal) {
  return signal == SIGINT || signal == SIGTERM;
}

}  // namespace yoke
