// A helper process that outlives the launcher for a moment and kills what it left behind.
//
// PR_SET_PDEATHSIG reaches a rank but not its children. The guardian knows the process group of every rank
// and kills them once the launcher is gone, however it ended.
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

  // Called by a rank for itself, between fork and exec: async-signal-safe.
  void add(pid_t group) const;
  // Call it before the group leader is reaped, while its pid cannot be reused.
  void remove(pid_t group) const;

 private:
  net::Descriptor pipe_;
  pid_t pid_ = -1;
};

}  // namespace yoke::cluster
