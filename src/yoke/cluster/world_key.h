// Distributes the job's key among ranks of one user on one machine if no launcher provided one.
//
// Rank 0 generates it and serves it on a unix socket whose name is derived from the job; both ends check with
// the kernel that the other process belongs to the same user.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "yoke/base/deadline.h"
#include "yoke/net/address.h"
#include "yoke/net/secret.h"

namespace yoke::cluster {

class KeyGiver {
 public:
  KeyGiver(const net::Address& address, const net::Secret& secret);
  ~KeyGiver();

 private:
  void serve();
  net::Descriptor listening_;
  net::Descriptor stop_;
  net::Secret secret_;
  std::thread thread_;
};

// Address of the key socket of a job.
net::Address key_address(const std::string& job_id, int generation);

// Throws Error with kRendezvous: no answer, or another user.
net::Secret fetch_key(const net::Address& address, Deadline deadline);

}  // namespace yoke::cluster
