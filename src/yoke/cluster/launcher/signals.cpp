#include "yoke/cluster/launcher/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "yoke/base/error.h"

namespace yoke::cluster {
namespace {

bool ignored(int signal) {
  struct sigaction action {};
  ::sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

void set_handler(int signal, void (*handler)(int), struct sigaction& previous) {
  struct sigaction action {};
  action.sa_handler = handler;
  ::sigaction(signal, &action, &previous);
}

}  // namespace

SignalReader::SignalReader() {
  sigset_t wanted;
  ::sigemptyset(&wanted);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGXCPU}) {
    if (!ignored(signal)) ::sigaddset(&wanted, signal);
  }
  ::sigaddset(&wanted, SIGCHLD);
  set_handler(SIGCHLD, SIG_DFL, previous_child_);  // if it were ignored, exits of children would be lost
  set_handler(SIGPIPE, SIG_IGN, previous_pipe_);
  ::pthread_sigmask(SIG_BLOCK, &wanted, &previous_);
  fd_ = net::Descriptor(::signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd_) throw Error(ExitCode::kInternal, "launcher: no signalfd: " + describe_errno(errno));
}

SignalReader::~SignalReader() {
  ::sigaction(SIGCHLD, &previous_child_, nullptr);
  ::sigaction(SIGPIPE, &previous_pipe_, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
}

std::vector<int> SignalReader::read() {
  std::vector<int> signals;
  signalfd_siginfo info{};
  while (::read(fd_.get(), &info, sizeof info) == sizeof info)
    signals.push_back(static_cast<int>(info.ssi_signo));
  return signals;
}

const char* signal_name(int signal) {
  constexpr std::array<std::pair<int, const char*>, 18> kNames = {{{SIGHUP, "SIGHUP"},
                                                                   {SIGINT, "SIGINT"},
                                                                   {SIGQUIT, "SIGQUIT"},
                                                                   {SIGILL, "SIGILL"},
                                                                   {SIGTRAP, "SIGTRAP"},
                                                                   {SIGABRT, "SIGABRT"},
                                                                   {SIGBUS, "SIGBUS"},
                                                                   {SIGFPE, "SIGFPE"},
                                                                   {SIGKILL, "SIGKILL"},
                                                                   {SIGUSR1, "SIGUSR1"},
                                                                   {SIGSEGV, "SIGSEGV"},
                                                                   {SIGUSR2, "SIGUSR2"},
                                                                   {SIGPIPE, "SIGPIPE"},
                                                                   {SIGALRM, "SIGALRM"},
                                                                   {SIGTERM, "SIGTERM"},
                                                                   {SIGXCPU, "SIGXCPU"},
                                                                   {SIGXFSZ, "SIGXFSZ"},
                                                                   {SIGSYS, "SIGSYS"}}};
  for (const auto& [number, name] : kNames) {
    if (number == signal) return name;
  }
  return "another signal";
}

}  // namespace yoke::cluster
