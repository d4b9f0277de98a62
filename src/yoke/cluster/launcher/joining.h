// Machines that add their ranks to an elastic job that runs already.
#pragma once

#include "yoke/cluster/launcher/launcher.h"

namespace yoke::cluster {

// Options of this machine for launch(): its ranks follow those that the job at options.endpoint has had.
// `options` has the sizes of this machine only. Waits for the job, and until it has formed, for
// options.join_timeout seconds. Throws Error with kRendezvous: nobody is there, or the job is not elastic.
LaunchOptions join_running_job(LaunchOptions options);

}  // namespace yoke::cluster
