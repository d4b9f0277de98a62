// A process that has loaded the ranks' program and forks them: loading LibTorch takes longer than most of a
// rank's start, and its memory is the same in all of them.
//
// The zygote is the program itself, started once with the arguments of the ranks, waiting at the top of
// main() with a single thread. A rank is its grandchild whose parent has ended, so that it becomes the
// launcher's own child: the launcher waits for it, and is told of its end, as if it had started the program.
// A rank sees the environment it would have seen, also in /proc/PID/environ, except that the dynamic loader
// and OpenMP have read the part that all ranks have in common.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "yoke/cluster/launcher/child.h"
#include "yoke/cluster/launcher/guardian.h"
#include "yoke/net/address.h"

namespace yoke::cluster {

class Zygote {
 public:
  // Starts it. `first`, `second`: two of the ranks, which show what their environments have in common. The
  // calling process must adopt orphans (Orphans). Throws ConfigError if the system refuses to execute
  // `program`.
  Zygote(const std::string& program, const ChildSpec& first, const ChildSpec& second,
         const Guardian& guardian);
  ~Zygote();
  Zygote(const Zygote&) = delete;
  Zygote& operator=(const Zygote&) = delete;

  // Forks a rank, as start_child() would start it. Nothing if the zygote cannot: it is gone, could not be
  // loaded, has several threads, or does not answer. Then it never can again.
  std::optional<pid_t> fork_rank(const ChildSpec& spec);

  pid_t pid() const { return pid_; }  // -1: it has ended

 private:
  bool request(const ChildSpec& spec) const;
  std::optional<pid_t> answer() const;
  void end();

  const Guardian& guardian_;
  net::Descriptor socket_;  // empty: it cannot
  pid_t pid_ = -1;
};

// False with YOKE_ZYGOTE=off: every rank loads the program itself, as a debugger or profiler may want it.
bool zygotes_wanted();

// For the top of a program's main(): returns at once unless the program was started as a zygote. A zygote
// serves requests until the launcher closes the connection and then exits; this function returns in every
// rank it forks, with true.
bool serve_as_zygote();

}  // namespace yoke::cluster
