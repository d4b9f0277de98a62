// Which launcher hosts the coordinator of a job: that of machine 0, or the one that was elected through etcd.
#pragma once

#include <memory>

#include "yoke/cluster/coordinator.h"
#include "yoke/cluster/launcher/child_environment.h"

namespace yoke::cluster {

class Hosting {
 public:
  virtual ~Hosting() = default;
  // Thread-safe. nullptr: another launcher hosts it. Changes while the job runs if it is elected.
  virtual std::shared_ptr<Coordinator> coordinator() const = 0;
};

// Machine 0 hosts it. Throws Error with kRendezvous if the endpoint cannot be opened. Sets place.endpoint if
// only this process can know it.
std::unique_ptr<Hosting> host_on_first_machine(const LaunchOptions& options, JobPlace& place);

// Every launcher stands for election: whoever creates the job's key in etcd hosts the coordinator, for as
// long as it keeps the lease on that key. If it dies, or its machine is cut off from etcd, another one takes
// up the job within a few seconds. Throws Error with kRendezvous if etcd does not answer.
std::unique_ptr<Hosting> host_if_elected(const LaunchOptions& options, const JobPlace& place);

// What both have in common: all but the address.
CoordinatorOptions coordinator_options(const LaunchOptions& options);
std::string random_name();
// The same on all machines of a job.
net::JobTicket make_ticket(const LaunchOptions& options);

}  // namespace yoke::cluster
