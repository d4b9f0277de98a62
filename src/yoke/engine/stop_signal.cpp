#include "yoke/engine/stop_signal.h"

#include "yoke/base/stop_signals.h"

namespace yoke::engine {
namespace {

volatile std::sig_atomic_t requested = 0;
volatile std::sig_atomic_t urgent = 0;

void on_signal(int signal) {
  if (requested == 0) requested = signal;
  if (!is_urgent(signal)) return;
  if (urgent != 0) {
    // Second signal: die from it, so that the parent sees the signal.
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  urgent = 1;
}

}  // namespace

StopSignals::StopSignals() {
  requested = 0;
  urgent = 0;
  for (int signal : kStopSignals) {
    Before before{signal, {}};
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    ::sigaction(signal, nullptr, &before.action);
    if (signal == SIGHUP && before.action.sa_handler == SIG_IGN) continue;  // nohup
    ::sigaction(signal, &action, nullptr);
    before_.push_back(before);
  }
}

StopSignals::~StopSignals() {
  for (const Before& one : before_) ::sigaction(one.signal, &one.action, nullptr);
  requested = 0;
}

int requested_stop() {
  return requested;
}

}  // namespace yoke::engine
