// Building blocks of collective algorithms. Private to this folder.
//
// A phase writes the steps of one rank from `round` on and returns the first round after it, the same on all
// ranks: a message is received in the round in which it is sent, and no phase writes in a round a range that
// it sends in that round.
#pragma once

#include <vector>

#include "yoke/plan/collectives/steps.h"

namespace yoke::plan {

using Blocks = std::vector<Range>;

// A subset of the ranks, in the order in which an algorithm numbers them.
class Members {
 public:
  Members(std::vector<int> ranks, int rank);
  int size() const { return static_cast<int>(ranks_.size()); }
  int me() const { return me_; }  // -1: the writing rank is not a member
  int rank(int index) const { return ranks_[static_cast<size_t>(index)]; }
  int next() const { return rank((me_ + 1) % size()); }
  int previous() const { return rank((me_ + size() - 1) % size()); }

 private:
  std::vector<int> ranks_;
  int me_ = -1;
};

// first, first + stride, …: `count` ranks.
Members members_from(int first, int stride, int count, int rank);
// All ranks, starting with `first`, modulo `size`.
Members members_around(int first, int size, int rank);
inline Members everybody(const CollectiveRequest& request) {
  return members_around(0, request.size, request.rank);
}

class StepWriter {
 public:
  void send(int round, int peer, Range range) { add({round, Action::kSend, peer, range}); }
  void receive(int round, int peer, Range range) { add({round, Action::kReceive, peer, range}); }
  void combine(int round, int peer, Range range) { add({round, Action::kCombine, peer, range}); }
  void merge(int round, int peer, Range range) { add({round, Action::kMerge, peer, range}); }
  void add(const Step& step) { steps_.push_back(step); }
  std::vector<Step> in_order() &&;  // by round; within a round as written

 private:
  std::vector<Step> steps_;
};

inline Range whole(const CollectiveRequest& request) {
  return {0, request.count};
}
// request.parts as ranges, or equal parts.
Blocks part_blocks(const CollectiveRequest& request);
Blocks equal_blocks(Range range, int parts);
// Pieces of about `piece` elements; at least one.
Blocks pieces_of(Range range, int64_t piece);
// From the begin of the first to the end of the last of `count` adjacent blocks.
Range span_of(const Blocks& blocks, int first, int count);

// Member m ends up with block (m + owner_offset) mod size combined; one block per member.
int ring_reduce_scatter(StepWriter& out, int round, const Members& members, const Blocks& blocks,
                        int owner_offset);
// The inverse: member m starts with block m + owner_offset.
int ring_all_gather(StepWriter& out, int round, const Members& members, const Blocks& blocks,
                    int owner_offset);
// From the first member to the last, pipelined in pieces.
int chain(StepWriter& out, int round, const Members& members, const Blocks& pieces, Action at_receiver);

// One round each; member m owns block m. Contributions are combined in member order.
int direct_reduce_scatter(StepWriter& out, int round, const Members& members, const Blocks& blocks);
int direct_all_gather(StepWriter& out, int round, const Members& members, const Blocks& blocks);
int direct_gather(StepWriter& out, int round, const Members& members, const Blocks& blocks, int root,
                  Action at_root = Action::kReceive);
int direct_scatter(StepWriter& out, int round, const Members& members, const Blocks& blocks, int root);

// One round: every member receives everything and combines it in member order.
int exchange(StepWriter& out, int round, const Members& members, Range range);

// An algorithm for one operation: writes the steps of request.rank.
using Form = void (*)(const CollectiveRequest& request, StepWriter& out);

// ring.cpp: bandwidth-optimal, neighbours only.
void ring_all_reduce_form(const CollectiveRequest& request, StepWriter& out);
void ring_reduce_form(const CollectiveRequest& request, StepWriter& out);
void ring_reduce_scatter_form(const CollectiveRequest& request, StepWriter& out);
void ring_all_gather_form(const CollectiveRequest& request, StepWriter& out);
void ring_broadcast_form(const CollectiveRequest& request, StepWriter& out);

// tree.cpp: double binary tree, logarithmic latency at full bandwidth.
void tree_all_reduce_form(const CollectiveRequest& request, StepWriter& out);
void tree_reduce_form(const CollectiveRequest& request, StepWriter& out);
void tree_broadcast_form(const CollectiveRequest& request, StepWriter& out);
void tree_barrier_form(const CollectiveRequest& request, StepWriter& out);

// halving_doubling.cpp: log2 N rounds.
void halving_all_reduce_form(const CollectiveRequest& request, StepWriter& out);
void halving_reduce_form(const CollectiveRequest& request, StepWriter& out);
void halving_reduce_scatter_form(const CollectiveRequest& request, StepWriter& out);
void halving_all_gather_form(const CollectiveRequest& request, StepWriter& out);
void halving_broadcast_form(const CollectiveRequest& request, StepWriter& out);
void halving_gather_form(const CollectiveRequest& request, StepWriter& out);
void halving_scatter_form(const CollectiveRequest& request, StepWriter& out);
void halving_barrier_form(const CollectiveRequest& request, StepWriter& out);

// star.cpp: one hub does all the work.
void star_all_reduce_form(const CollectiveRequest& request, StepWriter& out);
void star_reduce_form(const CollectiveRequest& request, StepWriter& out);
void star_reduce_scatter_form(const CollectiveRequest& request, StepWriter& out);
void star_all_gather_form(const CollectiveRequest& request, StepWriter& out);
void star_broadcast_form(const CollectiveRequest& request, StepWriter& out);
void star_gather_form(const CollectiveRequest& request, StepWriter& out);
void star_scatter_form(const CollectiveRequest& request, StepWriter& out);
void star_barrier_form(const CollectiveRequest& request, StepWriter& out);

// direct.cpp: every pair of ranks exchanges messages.
void direct_all_reduce_form(const CollectiveRequest& request, StepWriter& out);
void direct_reduce_form(const CollectiveRequest& request, StepWriter& out);
void direct_reduce_scatter_form(const CollectiveRequest& request, StepWriter& out);
void direct_all_gather_form(const CollectiveRequest& request, StepWriter& out);
void direct_all_to_all_form(const CollectiveRequest& request, StepWriter& out);
void direct_broadcast_form(const CollectiveRequest& request, StepWriter& out);
void direct_gather_form(const CollectiveRequest& request, StepWriter& out);
void direct_scatter_form(const CollectiveRequest& request, StepWriter& out);
void direct_barrier_form(const CollectiveRequest& request, StepWriter& out);

// direct.cpp: every rank receives everything; for tiny data.
void exchange_all_reduce_form(const CollectiveRequest& request, StepWriter& out);

// summation.cpp: by shares that load all links equally, with the help of ranks that only sum.
void summation_all_reduce_form(const CollectiveRequest& request, StepWriter& out);

// hierarchical.cpp: intra-machine first.
void hierarchical_all_reduce_form(const CollectiveRequest& request, StepWriter& out);
void hierarchical_reduce_form(const CollectiveRequest& request, StepWriter& out);
void hierarchical_reduce_scatter_form(const CollectiveRequest& request, StepWriter& out);
void hierarchical_all_gather_form(const CollectiveRequest& request, StepWriter& out);
void hierarchical_broadcast_form(const CollectiveRequest& request, StepWriter& out);
void hierarchical_gather_form(const CollectiveRequest& request, StepWriter& out);
void hierarchical_scatter_form(const CollectiveRequest& request, StepWriter& out);
void hierarchical_barrier_form(const CollectiveRequest& request, StepWriter& out);

}  // namespace yoke::plan
