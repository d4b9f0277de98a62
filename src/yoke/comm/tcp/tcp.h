// Collectives and point-to-point transfers over authenticated TCP (or unix) connections.
//
// Connections are opened on first use: the lower rank connects, the higher accepts. Collectives run the step
// lists of plan/collectives, split into frames; a frame is combined while the next one is in flight. The
// algorithm is chosen from link costs: rank 0 measures once and sends its result to all ranks (coarsely
// rounded, so that the choice is the same in every run). Sums of 16-bit types use `direct` or `exchange`
// unless another algorithm is requested: all contributions to a part meet at its owner (or at every rank),
// are added in fp32 and rounded once. Other algorithms round once per hop.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "yoke/cluster/failure.h"
#include "yoke/cluster/session.h"
#include "yoke/comm/backend.h"
#include "yoke/net/connection.h"
#include "yoke/plan/collectives/steps.h"

namespace yoke::comm {

struct TcpSetup {
  int rank = 0;  // in this group
  int size = 1;
  uint64_t group = 0;                    // unique among all groups of a job
  std::vector<cluster::Member> members;  // by rank in this group; `address`: of that rank's acceptor
  net::Acceptor* acceptor = nullptr;     // must outlive the backend
  net::JobTicket ticket;
  std::shared_ptr<cluster::Failure> failure;
  plan::LinkCost cost;  // used as is unless measured
  bool measures_cost = true;
  // all_reduce by `summation`: the last `spares` ranks only sum, in parts of at most part_bytes.
  int spares = 0;
  int64_t part_bytes = 4 << 20;
  // A link that seems to be cut is reported as such after 2.5 s (CutLinkError), because the job then checks
  // all links and continues. Otherwise it fails the job, after 20 s.
  bool elastic = false;
  int lanes = 1;  // connections per peer, 1 to 8; more than one helps on long fat networks only
};

// Does not block. Requires: `size` members, and an acceptor if size > 1.
std::unique_ptr<Backend> make_tcp_backend(const TcpSetup& setup);

}  // namespace yoke::comm
