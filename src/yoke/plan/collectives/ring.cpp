// Ring: every rank communicates with its two neighbours only (Patarasuk and Yuan 2009).
#include "yoke/plan/collectives/phases.h"

namespace yoke::plan {
namespace {

const Range& around(const Blocks& blocks, int index) {
  int n = static_cast<int>(blocks.size());
  return blocks[static_cast<size_t>((index % n + n) % n)];
}

}  // namespace

int ring_reduce_scatter(StepWriter& out, int round, const Members& members, const Blocks& blocks,
                        int owner_offset) {
  int rounds = members.size() - 1;
  if (members.me() >= 0) {
    for (int s = 0; s < rounds; ++s) {
      int block = members.me() + owner_offset - 1 - s;
      out.send(round + s, members.next(), around(blocks, block));
      out.combine(round + s, members.previous(), around(blocks, block - 1));
    }
  }
  return round + rounds;
}

int ring_all_gather(StepWriter& out, int round, const Members& members, const Blocks& blocks,
                    int owner_offset) {
  int rounds = members.size() - 1;
  if (members.me() >= 0) {
    for (int s = 0; s < rounds; ++s) {
      int block = members.me() + owner_offset - s;
      out.send(round + s, members.next(), around(blocks, block));
      out.receive(round + s, members.previous(), around(blocks, block - 1));
    }
  }
  return round + rounds;
}

int chain(StepWriter& out, int round, const Members& members, const Blocks& pieces, Action at_receiver) {
  int hops = members.size() - 1;
  if (hops == 0) return round;
  int count = static_cast<int>(pieces.size());
  for (int k = 0; k < count && members.me() >= 0; ++k) {
    const Range& piece = pieces[static_cast<size_t>(k)];
    int arrival = round + members.me() - 1 + k;
    if (members.me() > 0) out.add({arrival, at_receiver, members.previous(), piece});
    if (members.me() < hops) out.send(arrival + 1, members.next(), piece);
  }
  return round + hops + count - 1;
}

void ring_all_reduce_form(const CollectiveRequest& request, StepWriter& out) {
  Blocks blocks = equal_blocks(whole(request), request.size);
  int round = ring_reduce_scatter(out, 0, everybody(request), blocks, 1);
  ring_all_gather(out, round, everybody(request), blocks, 1);
}

void ring_reduce_form(const CollectiveRequest& request, StepWriter& out) {
  Members members = members_around(request.root + 1, request.size, request.rank);
  chain(out, 0, members, pieces_of(whole(request), request.piece), Action::kCombine);
}

void ring_reduce_scatter_form(const CollectiveRequest& request, StepWriter& out) {
  ring_reduce_scatter(out, 0, everybody(request), part_blocks(request), 0);
}

void ring_all_gather_form(const CollectiveRequest& request, StepWriter& out) {
  ring_all_gather(out, 0, everybody(request), part_blocks(request), 0);
}

void ring_broadcast_form(const CollectiveRequest& request, StepWriter& out) {
  Members members = members_around(request.root, request.size, request.rank);
  chain(out, 0, members, pieces_of(whole(request), request.piece), Action::kReceive);
}

}  // namespace yoke::plan
