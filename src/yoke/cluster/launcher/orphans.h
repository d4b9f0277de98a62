// Processes that ranks have started in process groups of their own (setsid, daemons) and left behind.
//
// While this object exists, this process is the child subreaper (PR_SET_CHILD_SUBREAPER): orphaned
// descendants become its children and cannot escape the job. If the launcher is killed by SIGKILL they do
// escape, to init.
#pragma once

#include <sys/types.h>

#include <functional>
#include <set>

namespace yoke::cluster {

class Orphans {
 public:
  // Existing children of this process are not treated as orphans; later ones are.
  Orphans();
  ~Orphans();  // kills them all
  Orphans(const Orphans&) = delete;
  Orphans& operator=(const Orphans&) = delete;

  // Reaps those that have ended, to avoid zombies. Leaves processes with `is_rank` alone.
  void reap(const std::function<bool(pid_t)>& is_rank);
  // Kills all of them and their descendants; takes at most two seconds. Requires: no rank is running.
  void end_all();

 private:
  std::set<pid_t> children() const;

  std::set<pid_t> before_;
  int previous_ = 0;
};

}  // namespace yoke::cluster
