// What ranks have started and left behind in process groups of their own (setsid, daemons).
//
// While it exists this process is the parent of whatever loses its own (PR_SET_CHILD_SUBREAPER), so that such
// processes cannot get away from the job. Not so when the launcher is killed by SIGKILL: they are init's
// then.
#pragma once

#include <sys/types.h>

#include <functional>
#include <set>

namespace yoke::cluster {

class Orphans {
 public:
  // Children that this process has now are not taken for orphans. Others that it gets meanwhile are.
  Orphans();
  ~Orphans();  // ends them all
  Orphans(const Orphans&) = delete;
  Orphans& operator=(const Orphans&) = delete;

  // Takes the status of those that have ended, so that they do not stay as zombies. `is_rank`: leave alone.
  void reap(const std::function<bool(pid_t)>& is_rank);
  // Kills all there are, and what they leave behind in turn; waits at most two seconds. Requires: no rank
  // runs.
  void end_all();

 private:
  std::set<pid_t> children() const;

  std::set<pid_t> before_;
  int previous_ = 0;
};

}  // namespace yoke::cluster
