// Averages a vector over a group of peers that may vanish at any time.
//
// Every member sums one part of the vector (of the size it was given, possibly none). A member connects to
// each of the others that sum, sends them their parts, and receives the means on the same connection. So a
// peer that nobody can connect to takes part as well. All reducers work at the same time, in chunks.
//
//   A sender that vanishes, stalls or sends values that are not finite is left out: what it gave is used, and
//   the rest is averaged over the others.
//   A reducer that vanishes leaves its part un-averaged: the result names it and is not complete.
//
// A connection is accepted only with the token of its round and pair; one that was kept from an earlier round
// begins with it. Encrypted (ticket.h).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "yoke/collab/group_memory.h"
#include "yoke/collab/kept_links.h"
#include "yoke/collab/robust.h"
#include "yoke/net/connection.h"

namespace yoke::collab {

struct GroupMember {
  int peer = -1;
  std::string name;
  std::string address;           // empty: it accepts no connections, and sums nothing
  double weight = 1;             // samples; 0: it only receives
  int64_t begin = 0, count = 0;  // elements it sums
  uint64_t send_token = 0;       // shown to it
  uint64_t receive_token = 0;    // expected from it
};

struct GroupPlan {
  int64_t epoch = 0;
  int64_t phase = 0;  // later ones average what earlier ones gave
  int64_t attempt = 0;
  size_t self = 0;  // index in members
  int64_t elements = 0;
  Robust robust = Robust::kNone;
  int suspects = 0;
  double seconds = 60;   // until the whole round is given up
  double patience = 60;  // until the meeting point answers the result
  std::vector<GroupMember> members;

  bool sums(size_t member) const { return members[member].count > 0; }
};

// The plan in an "average" message. Throws BadMessage: fields missing or out of range, parts that do not
// cover the vector, this peer not a member.
GroupPlan parse_group(const nlohmann::json& message);

struct LostPeer {
  int peer = -1;
  std::string why;
};

struct GroupResult {
  bool complete = true;  // every element was averaged
  std::vector<LostPeer> senders;
  std::vector<LostPeer> reducers;
  struct Score {
    int peer;
    double score;     // outlier_scores()
    double distance;  // distances_from()
  };
  std::vector<Score> outliers;  // seen by this reducer; empty with Robust::kNone
  double usual_size = 0;        // of the members' values in its part
  int64_t bytes_sent = 0;
  struct Received {
    int peer;
    int64_t bytes;
    double seconds;  // from the start of the round to the last of them
  };
  std::vector<Received> received;  // by member that sent anything
};

struct GroupOptions {
  KeptLinks* links = nullptr;     // from earlier rounds, and for later ones; nullptr: none
  GroupMemory* memory = nullptr;  // the same
  double stall = 15;              // seconds without progress of a link
  int64_t chunk_bytes = 0;        // of one frame, the same on all members; 0: follows from the vector
};

// Replaces `values` by the average. `acceptor`: of this peer, at the address the others know; nullptr if it
// accepts no connections. Returns within plan.seconds; throws nothing for failures of others.
GroupResult average_in_group(const GroupPlan& plan, std::span<float> values, net::Acceptor* acceptor,
                             const net::JobTicket& ticket, const GroupOptions& options);

}  // namespace yoke::collab
