// Signals that ask a run to stop after the current step, with its state saved (base/stop_signals.h). A second
// SIGINT or SIGTERM ends it at once.
#pragma once

#include <csignal>
#include <vector>

namespace yoke::engine {

// Installs the handlers until destroyed: keep it until the last checkpoint is written. A signal that the
// process was started to ignore (nohup) stays ignored. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  struct Before {
    int signal = 0;
    struct sigaction action {};
  };
  std::vector<Before> before_;
};

// The signal that asked to stop, or 0 where there was none, or nothing is installed.
int requested_stop();

}  // namespace yoke::engine
