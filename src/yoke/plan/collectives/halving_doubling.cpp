// Recursive halving and doubling (Rabenseifner): log2 N rounds. If N is not a power of two, surplus ranks are
// paired with neighbours: they send their contribution before and receive the result after.
#include "yoke/plan/collectives/phases.h"

namespace yoke::plan {
namespace {

// The power of two of ranks that do the work (the core), and the pairing of the others.
class Fold {
 public:
  // A root is always in the core; -1: there is no root.
  Fold(int rank, int size, int root) : rank_(rank) {
    int core = 1;
    while (core <= size / 2) core *= 2;
    pairs_ = size - core;
    std::vector<int> ranks;
    for (int i = 0; i < core; ++i) ranks.push_back(i < pairs_ ? 2 * i + (root == 2 * i + 1) : i + pairs_);
    core_ = Members(std::move(ranks), rank);
  }

  const Members& core() const { return core_; }
  bool any() const { return pairs_ > 0; }
  bool paired() const { return rank_ < 2 * pairs_; }
  bool handed_in() const { return core_.me() < 0; }
  int partner() const { return rank_ ^ 1; }
  int root_index(int root) const { return root < 2 * pairs_ ? root / 2 : root - pairs_; }

  // What each rank of the core represents: its own part and its partner's.
  Blocks join(const Blocks& parts) const {
    Blocks blocks;
    for (int i = 0; i < core_.size(); ++i)
      blocks.push_back(i < pairs_ ? span_of(parts, 2 * i, 2) : parts[static_cast<size_t>(i + pairs_)]);
    return blocks;
  }

  // Partner to core. `range` is the sender's.
  int in(StepWriter& out, int round, Range range, Action at_receiver) const {
    if (paired() && handed_in()) out.send(round, partner(), range);
    if (paired() && !handed_in()) out.add({round, at_receiver, partner(), range});
    return round + any();
  }
  // Core to partner. `range` is the receiver's.
  int back(StepWriter& out, int round, Range range) const {
    if (paired() && handed_in()) out.receive(round, partner(), range);
    if (paired() && !handed_in()) out.send(round, partner(), range);
    return round + any();
  }
  // The part of the rank of the pair that is not in the core.
  Range folded_part(const Blocks& parts) const {
    return paired() ? parts[static_cast<size_t>(handed_in() ? rank_ : partner())] : Range{};
  }

 private:
  int rank_;
  int pairs_ = 0;
  Members core_{{}, -1};
};

int halving(StepWriter& out, int round, const Members& core, const Blocks& blocks) {
  for (int d = core.size() / 2; d >= 1; d /= 2, ++round) {
    if (core.me() < 0) continue;
    int keep = core.me() & ~(d - 1);
    int peer = core.rank(core.me() ^ d);
    out.send(round, peer, span_of(blocks, keep ^ d, d));
    out.combine(round, peer, span_of(blocks, keep, d));
  }
  return round;
}

int doubling(StepWriter& out, int round, const Members& core, const Blocks& blocks) {
  for (int d = 1; d < core.size(); d *= 2, ++round) {
    if (core.me() < 0) continue;
    int have = core.me() & ~(d - 1);
    int peer = core.rank(core.me() ^ d);
    out.send(round, peer, span_of(blocks, have, d));
    out.receive(round, peer, span_of(blocks, have ^ d, d));
  }
  return round;
}

// Ranks are numbered relative to the root: at distance d, a rank whose lowest set bit is d sends its d
// blocks.
int gather_to(StepWriter& out, int round, const Members& core, const Blocks& blocks, int root) {
  for (int d = 1; d < core.size(); d *= 2, ++round) {
    int relative = core.me() ^ root;
    if (core.me() < 0 || (relative & (d - 1)) != 0) continue;
    int have = core.me() & ~(d - 1);
    int peer = core.rank(core.me() ^ d);
    if (relative & d) {
      out.send(round, peer, span_of(blocks, have, d));
    } else {
      out.receive(round, peer, span_of(blocks, have ^ d, d));
    }
  }
  return round;
}

int scatter_from(StepWriter& out, int round, const Members& core, const Blocks& blocks, int root) {
  for (int d = core.size() / 2; d >= 1; d /= 2, ++round) {
    int relative = core.me() ^ root;
    if (core.me() < 0 || (relative & (d - 1)) != 0) continue;
    int keep = core.me() & ~(d - 1);
    int peer = core.rank(core.me() ^ d);
    if (relative & d) {
      out.receive(round, peer, span_of(blocks, keep, d));
    } else {
      out.send(round, peer, span_of(blocks, keep ^ d, d));
    }
  }
  return round;
}

}  // namespace

void halving_all_reduce_form(const CollectiveRequest& request, StepWriter& out) {
  Fold fold(request.rank, request.size, -1);
  Blocks blocks = equal_blocks(whole(request), fold.core().size());
  int round = fold.in(out, 0, whole(request), Action::kCombine);
  round = halving(out, round, fold.core(), blocks);
  round = doubling(out, round, fold.core(), blocks);
  fold.back(out, round, whole(request));
}

void halving_reduce_form(const CollectiveRequest& request, StepWriter& out) {
  Fold fold(request.rank, request.size, request.root);
  Blocks blocks = equal_blocks(whole(request), fold.core().size());
  int round = fold.in(out, 0, whole(request), Action::kCombine);
  round = halving(out, round, fold.core(), blocks);
  gather_to(out, round, fold.core(), blocks, fold.root_index(request.root));
}

void halving_reduce_scatter_form(const CollectiveRequest& request, StepWriter& out) {
  Fold fold(request.rank, request.size, -1);
  Blocks parts = part_blocks(request);
  int round = fold.in(out, 0, whole(request), Action::kCombine);
  round = halving(out, round, fold.core(), fold.join(parts));
  fold.back(out, round, fold.folded_part(parts));
}

void halving_all_gather_form(const CollectiveRequest& request, StepWriter& out) {
  Fold fold(request.rank, request.size, -1);
  Blocks parts = part_blocks(request);
  int round = fold.in(out, 0, fold.folded_part(parts), Action::kReceive);
  round = doubling(out, round, fold.core(), fold.join(parts));
  fold.back(out, round, whole(request));
}

void halving_broadcast_form(const CollectiveRequest& request, StepWriter& out) {
  Fold fold(request.rank, request.size, request.root);
  Blocks blocks = equal_blocks(whole(request), fold.core().size());
  int round = scatter_from(out, 0, fold.core(), blocks, fold.root_index(request.root));
  round = doubling(out, round, fold.core(), blocks);
  fold.back(out, round, whole(request));
}

void halving_gather_form(const CollectiveRequest& request, StepWriter& out) {
  Fold fold(request.rank, request.size, request.root);
  Blocks parts = part_blocks(request);
  int round = fold.in(out, 0, fold.folded_part(parts), Action::kReceive);
  gather_to(out, round, fold.core(), fold.join(parts), fold.root_index(request.root));
}

void halving_scatter_form(const CollectiveRequest& request, StepWriter& out) {
  Fold fold(request.rank, request.size, request.root);
  Blocks parts = part_blocks(request);
  int round = scatter_from(out, 0, fold.core(), fold.join(parts), fold.root_index(request.root));
  fold.back(out, round, fold.folded_part(parts));
}

void halving_barrier_form(const CollectiveRequest& request, StepWriter& out) {
  Fold fold(request.rank, request.size, -1);
  int round = fold.in(out, 0, {}, Action::kReceive);
  round = doubling(out, round, fold.core(), Blocks(static_cast<size_t>(fold.core().size())));
  fold.back(out, round, {});
}

}  // namespace yoke::plan
