#include "yoke/cluster/launcher/orphans.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "yoke/base/deadline.h"

namespace yoke::cluster {
namespace {

constexpr double kPatience = 2;

std::optional<pid_t> number(const std::string& text) {
  pid_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// -1: it is gone.
pid_t parent_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  // The name in parentheses may contain anything; state and parent follow it.
  size_t end = line.rfind(')');
  if (end == std::string::npos || end + 4 >= line.size()) return -1;
  std::string rest = line.substr(end + 4);
  return number(rest.substr(0, rest.find(' '))).value_or(-1);
}

}  // namespace

Orphans::Orphans() {
  before_ = children();
  ::prctl(PR_GET_CHILD_SUBREAPER, &previous_);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Orphans::~Orphans() {
  end_all();
  ::prctl(PR_SET_CHILD_SUBREAPER, previous_);
}

std::set<pid_t> Orphans::children() const {
  std::set<pid_t> found;
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc", error), end; !error && at != end;
       at.increment(error)) {
    std::optional<pid_t> pid = number(at->path().filename().string());
    if (pid && parent_of(*pid) == ::getpid() && !before_.contains(*pid)) found.insert(*pid);
  }
  return found;
}

void Orphans::reap(const std::function<bool(pid_t)>& is_rank) {
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    if (before_.contains(info.si_pid) || is_rank(info.si_pid)) return;
    ::waitpid(info.si_pid, nullptr, WNOHANG);
  }
}

void Orphans::end_all() {
  Deadline deadline = Deadline::after(kPatience);
  for (std::set<pid_t> left = children(); !left.empty() && !deadline.passed(); left = children()) {
    for (pid_t pid : left) ::kill(pid, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (pid_t pid : left) ::waitpid(pid, nullptr, WNOHANG);
  }
}

}  // namespace yoke::cluster
