#include "yoke/engine/stop_signal.h"

#include <csignal>

namespace yoke::engine {
namespace {

volatile std::sig_atomic_t requested = 0;
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};

void on_signal(int signal) {
  if (requested != 0) {
    // Asked twice: die of it, so that the parent sees the signal.
    std::signal(signal, SIG_DFL);
    std::raise(signal);
    return;
  }
  requested = signal;
}

}  // namespace

StopSignals::StopSignals() {
  requested = 0;
  for (int signal : kSignals) {
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    ::sigaction(signal, &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (int signal : kSignals) std::signal(signal, SIG_DFL);
}

int requested_stop() {
  return requested;
}

}  // namespace yoke::engine
