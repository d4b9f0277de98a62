#include "yoke/cluster/failure.h"

#include <fmt/core.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "yoke/base/error.h"

namespace yoke::cluster {

std::string rank_name(int rank, const std::string& role) {
  return role.empty() ? fmt::format("rank {}", rank) : fmt::format("{} (rank {})", role, rank);
}

Failure::Failure() : event_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  YOKE_CHECK(event_fd_ >= 0, "eventfd: {}", describe_errno(errno));
}

Failure::~Failure() {
  ::close(event_fd_);
}

bool Failure::raise(FailureReport report) {
  std::lock_guard lock(mutex_);
  if (set_.load(std::memory_order_relaxed)) return false;
  report_ = std::move(report);
  set_.store(true, std::memory_order_release);
  uint64_t one = 1;
  [[maybe_unused]] ssize_t written = ::write(event_fd_, &one, sizeof one);
  return true;
}

FailureReport Failure::report() const {
  std::lock_guard lock(mutex_);
  return report_;
}

void Failure::check(const char* doing) const {
  if (!set()) return;
  FailureReport now = report();
  throw CommError("{}: {}{}{}", doing, now.what, now.next.empty() ? "" : ". ", now.next);
}

}  // namespace yoke::cluster
