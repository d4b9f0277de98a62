// A small process that outlives the launcher by a moment and ends what it left behind.
//
// PR_SET_PDEATHSIG reaches a rank but not what the rank has started. The guardian knows the process group of
// every rank; when the launcher is gone, however it went, it kills them.
#pragma once

#include <sys/types.h>

#include "yoke/net/address.h"

namespace yoke::cluster {

class Guardian {
 public:
  Guardian();
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  // Called by a rank about itself, between fork and exec: async-signal-safe.
  void add(pid_t group) const;
  // Before the group's leader is reaped, so that its number cannot belong to somebody else yet.
  void remove(pid_t group) const;

 private:
  net::Descriptor pipe_;
  pid_t pid_ = -1;
};

}  // namespace yoke::cluster
