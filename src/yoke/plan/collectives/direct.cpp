// Direct: every rank talks to every other, as between ranks of one machine or behind one switch.
#include "yoke/plan/collectives/phases.h"

namespace yoke::plan {
namespace {

const Range& block(const Blocks& blocks, int index) {
  return blocks[static_cast<size_t>(index)];
}

// Every rank starts with its neighbour, so that no rank is the first target of all.
template <class Emit>
void for_others_after(const Members& members, Emit emit) {
  for (int k = 1; k < members.size(); ++k) emit((members.me() + k) % members.size());
}

template <class Emit>
void for_others_in_order(const Members& members, Emit emit) {
  for (int m = 0; m < members.size(); ++m) {
    if (m != members.me()) emit(m);
  }
}

}  // namespace

int direct_reduce_scatter(StepWriter& out, int round, const Members& members, const Blocks& blocks) {
  if (members.me() >= 0) {
    for_others_after(members, [&](int m) { out.send(round, members.rank(m), block(blocks, m)); });
    for_others_in_order(members,
                        [&](int m) { out.combine(round, members.rank(m), block(blocks, members.me())); });
  }
  return round + (members.size() > 1);
}

int direct_all_gather(StepWriter& out, int round, const Members& members, const Blocks& blocks) {
  if (members.me() >= 0) {
    for_others_after(members, [&](int m) { out.send(round, members.rank(m), block(blocks, members.me())); });
    for_others_in_order(members, [&](int m) { out.receive(round, members.rank(m), block(blocks, m)); });
  }
  return round + (members.size() > 1);
}

int exchange(StepWriter& out, int round, const Members& members, Range range) {
  if (members.me() >= 0) {
    for_others_after(members, [&](int m) { out.send(round, members.rank(m), range); });
    for_others_in_order(members, [&](int m) { out.merge(round, members.rank(m), range); });
  }
  return round + (members.size() > 1);
}

int direct_gather(StepWriter& out, int round, const Members& members, const Blocks& blocks, int root,
                  Action at_root) {
  if (members.me() == root) {
    for_others_in_order(members, [&](int m) {
      out.add({round, at_root, members.rank(m), block(blocks, m)});
    });
  } else if (members.me() >= 0) {
    out.send(round, members.rank(root), block(blocks, members.me()));
  }
  return round + (members.size() > 1);
}

int direct_scatter(StepWriter& out, int round, const Members& members, const Blocks& blocks, int root) {
  if (members.me() == root) {
    for_others_in_order(members, [&](int m) { out.send(round, members.rank(m), block(blocks, m)); });
  } else if (members.me() >= 0) {
    out.receive(round, members.rank(root), block(blocks, members.me()));
  }
  return round + (members.size() > 1);
}

void direct_all_reduce_form(const CollectiveRequest& request, StepWriter& out) {
  Blocks blocks = equal_blocks(whole(request), request.size);
  int round = direct_reduce_scatter(out, 0, everybody(request), blocks);
  direct_all_gather(out, round, everybody(request), blocks);
}

void exchange_all_reduce_form(const CollectiveRequest& request, StepWriter& out) {
  exchange(out, 0, everybody(request), whole(request));
}

void direct_reduce_form(const CollectiveRequest& request, StepWriter& out) {
  Blocks blocks = equal_blocks(whole(request), request.size);
  int round = direct_reduce_scatter(out, 0, everybody(request), blocks);
  direct_gather(out, round, everybody(request), blocks, request.root);
}

void direct_reduce_scatter_form(const CollectiveRequest& request, StepWriter& out) {
  direct_reduce_scatter(out, 0, everybody(request), part_blocks(request));
}

void direct_all_gather_form(const CollectiveRequest& request, StepWriter& out) {
  direct_all_gather(out, 0, everybody(request), part_blocks(request));
}

// The second half of the buffer holds what was received: block size + m comes from member m.
void direct_all_to_all_form(const CollectiveRequest& request, StepWriter& out) {
  Members members = everybody(request);
  Blocks blocks = equal_blocks(whole(request), 2 * request.size);
  for_others_after(members, [&](int m) { out.send(0, m, block(blocks, m)); });
  for_others_in_order(members, [&](int m) { out.receive(0, m, block(blocks, request.size + m)); });
}

// The root sends every other rank a share, and they exchange shares: the root sends the data once, not once
// per rank.
void direct_broadcast_form(const CollectiveRequest& request, StepWriter& out) {
  if (request.size == 1) return;
  int others_count = request.size - 1;
  std::vector<int> ranks;
  for (int i = 1; i <= others_count; ++i) ranks.push_back((request.root + i) % request.size);
  Members others(std::move(ranks), request.rank);
  Blocks shares = equal_blocks(whole(request), others_count);
  for (int i = 0; i < others_count && request.rank == request.root; ++i)
    out.send(0, others.rank(i), block(shares, i));
  if (others.me() >= 0) out.receive(0, request.root, block(shares, others.me()));
  direct_all_gather(out, 1, others, shares);
}

void direct_gather_form(const CollectiveRequest& request, StepWriter& out) {
  direct_gather(out, 0, everybody(request), part_blocks(request), request.root);
}

void direct_scatter_form(const CollectiveRequest& request, StepWriter& out) {
  direct_scatter(out, 0, everybody(request), part_blocks(request), request.root);
}

void direct_barrier_form(const CollectiveRequest& request, StepWriter& out) {
  direct_all_gather(out, 0, everybody(request), Blocks(static_cast<size_t>(request.size)));
}

}  // namespace yoke::plan
