// The places of workers and servers on a messenger, with those for ranks that join later.
#pragma once

#include <vector>

namespace yoke::ps {

// Peers of a messenger are workers, then servers. Ranks of the job are those of the start, workers before
// servers, then whoever joins: the k-th to join is worker (workers + k) or server (servers + k).
struct Places {
  int workers = 1;  // at the start
  int servers = 1;
  int all_workers = 1;  // with places for those that join
  int all_servers = 1;

  int size() const { return all_workers + all_servers; }
  int at_start() const { return workers + servers; }
  int first_server() const { return all_workers; }
  int peer_of_worker(int rank) const { return rank < workers ? rank : rank - servers; }
  int peer_of_server(int rank) const { return all_workers + rank - workers; }
  // Of a peer, also before it joins.
  int rank_of(int peer) const {
    if (peer >= all_workers) return peer - all_workers + workers;
    return peer < workers ? peer : peer + servers;
  }
  bool is_late(int peer) const { return rank_of(peer) >= at_start(); }
  std::vector<bool> late() const {
    std::vector<bool> all;
    for (int peer = 0; peer < size(); ++peer) all.push_back(is_late(peer));
    return all;
  }
};

}  // namespace yoke::ps
