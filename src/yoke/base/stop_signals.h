// Signals that ask a run to save and stop: of people, of launchers, and of schedulers before a time limit.
#pragma once

#include <csignal>

namespace yoke {

constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};

// Whether a second one of it means "at once". The others are warnings, which schedulers and launchers may
// send several times (SIGXCPU comes every second).
constexpr bool is_urgent(int signal) {
  return signal == SIGINT || signal == SIGTERM;
}

}  // namespace yoke
