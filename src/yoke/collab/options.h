// Options of [collab]: training with peers that come and go, over the internet.
#pragma once

#include <cstdint>
#include <string>

#include "yoke/collab/balance.h"
#include "yoke/collab/robust.h"
#include "yoke/collab/roles.h"
#include "yoke/config/fields.h"

namespace yoke::collab {

struct CollabOptions {
  int64_t target_batch = 1024;
  std::string robust = "none";
  int64_t suspects = 0;
  std::string roles = "auto";
  int64_t group_size = 0;
  int64_t min_peers = 1;
  double timeout = 15;
  double quorum_timeout = 600;
  std::string bandwidth = "auto";
  std::string listen = "127.0.0.1:0";
  std::string identity;
};

// "auto", a rate above 0, or two: UPLOAD,DOWNLOAD. Empty text: accepted.
std::string check_bandwidth(const std::string& text);
// Of a text that was accepted; "auto": unknown.
LinkSpeed parse_bandwidth(const std::string& text);

inline void describe(config::Fields& f, CollabOptions& o) {
  f.integer("target_batch", o.target_batch, "samples of all peers together per step", 1, int64_t{1} << 40);
  f.choice("robust", o.robust, robust_names(), "how gradients of peers that may be wrong are combined");
  f.integer("suspects", o.suspects, "krum: how many peers may be wrong", 0, 1024);
  f.choice("roles", o.roles, role_policies(),
           "auto: links and speeds decide which peers compute and how much each sums; shares: all compute; "
           "equal: all sum the same");
  f.integer(
      "group_size", o.group_size,
      "more peers than this average in groups of a grid, in several rounds; 0: all in one group up to 64 "
      "peers and with collab.robust, else two rounds",
      0, 1024);
  f.integer("min_peers", o.min_peers, "wait with fewer peers than this", 1, 1024);
  f.duration("timeout", o.timeout, "a peer or a link without a message for this long is left out");
  f.duration("quorum_timeout", o.quorum_timeout,
             "the run ends after this long with fewer than min_peers or without the meeting point");
  f.checked_text("bandwidth", o.bandwidth,
                 "this peer's link: 20mbit, or upload,download: 5mbit,50mbit; auto: measured",
                 check_bandwidth);
  f.text("listen", o.listen, "where this peer accepts others: HOST:PORT, port 0: any free one");
  f.text("identity", o.identity, "file with this peer's key, created if missing; empty: a new key each time");
}

}  // namespace yoke::collab
