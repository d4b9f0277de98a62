#include "yoke/cluster/launcher/guardian.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "yoke/base/error.h"

namespace yoke::cluster {
namespace {

constexpr int kMaxGroups = 65536;
pid_t groups[kMaxGroups];  // used by the guardian; fixed size, because it must not allocate after fork

// A record is a group to watch, or its negative to forget. Below PIPE_BUF: atomic.
void apply(pid_t record) {
  pid_t group = record < 0 ? -record : record;
  pid_t wanted = record < 0 ? group : 0;
  pid_t value = record < 0 ? 0 : group;
  for (pid_t& slot : groups) {
    if (slot == wanted) {
      slot = value;
      return;
    }
  }
}

[[noreturn]] void guard(int from) {
  ::setpgid(0, 0);  // Ctrl-C is for the launcher
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE}) ::signal(signal, SIG_IGN);
  ::prctl(PR_SET_NAME, "yoke-guardian");
  int null = ::open("/dev/null", O_RDWR);
  for (int fd = 0; fd <= 2 && null >= 0; ++fd) ::dup2(null, fd);
  // Closes all inherited descriptors but its own pipe, moved to 3, so that it keeps nobody's pipe or socket
  // open.
  if (from != 3) ::dup2(from, 3);
  ::close_range(4, ~0U, 0);
  pid_t record = 0;
  for (;;) {
    ssize_t got = ::read(3, &record, sizeof record);
    if (got == sizeof record) {
      apply(record);
    } else if (got >= 0 || errno != EINTR) {
      break;
    }
  }
  for (pid_t group : groups) {
    if (group > 1) ::kill(-group, SIGKILL);
  }
  ::_exit(0);
}

}  // namespace

Guardian::Guardian() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw Error(ExitCode::kInternal, "launcher: no pipe: " + describe_errno(errno));
  pid_ = ::fork();
  if (pid_ < 0) throw Error(ExitCode::kInternal, "launcher: cannot fork: " + describe_errno(errno));
  if (pid_ == 0) {
    ::close(ends[1]);
    guard(ends[0]);
  }
  ::close(ends[0]);
  pipe_ = net::Descriptor(ends[1]);
}

Guardian::~Guardian() {
  pipe_.reset();  // the guardian reads end of file, has nothing left to kill, and exits
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guardian::add(pid_t group) const {
  [[maybe_unused]] ssize_t written = ::write(pipe_.get(), &group, sizeof group);
}

void Guardian::remove(pid_t group) const {
  add(-group);
}

}  // namespace yoke::cluster
