// Ctrl-C and SIGTERM ask a run to stop after the current step; a second one ends it at once.
#pragma once

namespace yoke::engine {

// Installs the handlers for SIGINT, SIGTERM and SIGHUP until destroyed.
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
