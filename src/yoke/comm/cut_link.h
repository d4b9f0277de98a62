#pragma once

#include <string>

#include "yoke/base/error.h"

namespace yoke::comm {

// A peer that cannot be reached over a link of this rank, while it may well be alive. In elastic jobs only:
// it is reported as a failure of kind "cut", after which the members test their links (cluster/link_check.h).
struct CutLinkError : CommError {
  CutLinkError(int peer, const std::string& text) : CommError("{}", text), rank(peer) {}
  int rank;  // in the job
};

}  // namespace yoke::comm
