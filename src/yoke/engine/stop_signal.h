// Signals that stop a run after the current step, with its state saved (base/stop_signals.h). A second SIGINT
// or SIGTERM ends it immediately.
#pragma once

#include <csignal>
#include <vector>

namespace yoke::engine {

// Installs the handlers until destroyed: keep it until the last checkpoint is written. A signal that was
// ignored when the process started (nohup) stays ignored. One instance at a time.
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

// Not a signal: the ranks of an elastic job stop after a step to regroup. Above all signals.
constexpr int kRegroup = 1000;

// Nor is this: a rank that followed the others has caught up, and all read the data in equal parts again.
constexpr int kCaughtUp = 900;

// The signal received, or 0 if there was none or nothing is installed.
int requested_stop();

}  // namespace yoke::engine
