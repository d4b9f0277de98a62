// How ranks of one user on one machine get a key for their job when no launcher gave them one.
//
// Rank 0 makes it and hands it out at a unix socket whose name follows from the job; both ends check that the
// other belongs to the same user, which the kernel vouches for.
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

net::Address key_address(const std::string& job_id, int generation);

// Throws Error with kRendezvous: nobody there, or another user.
net::Secret fetch_key(const net::Address& address, Deadline deadline);

}  // namespace yoke::cluster
