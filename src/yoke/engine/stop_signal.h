// Ctrl-C, SIGTERM and the signals of batch systems (SIGUSR1, SIGUSR2, SIGXCPU) ask a run to stop after the
// current step; a second one ends it at once.
#pragma once

namespace yoke::engine {

// Installs the handlers for SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and SIGXCPU until destroyed.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
};

// The signal that asked to stop, or 0.
int requested_stop();

}  // namespace yoke::engine
