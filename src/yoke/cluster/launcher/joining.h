// Machines that add their ranks to an elastic job that runs already.
#pragma once

#include <string>

#include "yoke/cluster/job_contact.h"
#include "yoke/cluster/launcher/launcher.h"

namespace yoke::cluster {

// Options of this machine for launch(): its ranks follow those that the job at options.endpoint has had.
// `options` has the sizes of this machine only. Waits for the job, and until it has formed, for
// options.join_timeout seconds. Throws Error with kRendezvous: nobody is there, or the job is not elastic.
LaunchOptions join_running_job(LaunchOptions options);

// A running job, as a user names it.
struct JobQuery {
  std::string where;          // the folder of a run on this machine, or HOST:PORT of the coordinator
  std::string secret_file{};  // of HOST:PORT, like the rest
  std::string job_id{};       // empty: that of HOST:PORT
  bool encrypt = false;
  bool insecure = false;
};

// Throws ConfigError: no job runs in that folder, or options that do not fit; Error with kRendezvous: nobody
// answers at HOST:PORT, or refuses.
JobContact find_job(const JobQuery& query, Deadline deadline);

}  // namespace yoke::cluster
