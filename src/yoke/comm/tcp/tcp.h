// Collectives and point-to-point transfers over authenticated TCP (or unix) connections.
//
// Connections are opened on first use: the lower rank calls, the higher accepts. Collectives run the step
// lists of plan/collectives, cut into frames; a frame is combined while the next one is on its way. The
// algorithm is chosen from the measured cost of the links: rank 0 measures once, its figures (coarsely
// rounded, so that a choice does not change from run to run) are everybody's. Sums of 16-bit types go by
// `direct` or `exchange` unless another algorithm is asked for: all contributions to a part meet at its owner
// (at every rank), are added in fp32 and rounded once. Other algorithms round once a hop.
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
  uint64_t group = 0;                    // differs between all groups of a job
  std::vector<cluster::Member> members;  // by rank in this group; `address`: of that rank's acceptor
  net::Acceptor* acceptor = nullptr;     // must outlive the backend
  net::JobTicket ticket;
  std::shared_ptr<cluster::Failure> failure;
  plan::LinkCost cost;  // used as it is unless measured
  bool measures_cost = true;
  int lanes = 1;  // connections to each peer, 1 to 8: more than one helps on long fat links only
};

// Does not wait for anybody. Requires: size members, an acceptor when size > 1.
std::unique_ptr<Backend> make_tcp_backend(const TcpSetup& setup);

}  // namespace yoke::comm
