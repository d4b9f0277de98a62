// Hierarchical: inside each machine first, so that only one machine's worth of data crosses between machines,
// divided among all of its ranks. Ranks with the same place in their machines form the groups across.
#include "yoke/plan/collectives/phases.h"

namespace yoke::plan {
namespace {

struct Grid {
  explicit Grid(const CollectiveRequest& request)
      : rank(request.rank), per_machine(request.machine_size), machines(request.size / per_machine) {}

  int machine_of(int r) const { return r / per_machine; }
  int place_of(int r) const { return r % per_machine; }
  // The ranks of this machine.
  Members inside() const { return members_from(machine_of(rank) * per_machine, 1, per_machine, rank); }
  // The ranks with `place` in all machines.
  Members across(int place) const { return members_from(place, per_machine, machines, rank); }
  Members across() const { return across(place_of(rank)); }
  // The parts of one machine's ranks, and of the ranks with one place.
  Blocks of_machine(const Blocks& parts, int machine) const {
    auto begin = parts.begin() + machine * per_machine;
    return {begin, begin + per_machine};
  }
  Blocks of_place(const Blocks& parts) const {
    Blocks blocks;
    for (int m = 0; m < machines; ++m)
      blocks.push_back(parts[static_cast<size_t>(m * per_machine + place_of(rank))]);
    return blocks;
  }
  // The group across, along a chain that starts at `machine`.
  Members chain_from(int machine) const {
    std::vector<int> ranks;
    for (int i = 0; i < machines; ++i)
      ranks.push_back((machine + i) % machines * per_machine + place_of(rank));
    return {std::move(ranks), rank};
  }

  int rank, per_machine, machines;
};

// Only ranks of the root's machine take part in phases inside it.
Members only_in(const Grid& grid, int machine) {
  return members_from(machine * grid.per_machine, 1, grid.per_machine, grid.rank);
}

}  // namespace

void hierarchical_all_reduce_form(const CollectiveRequest& request, StepWriter& out) {
  Grid grid(request);
  Blocks shares = equal_blocks(whole(request), grid.per_machine);
  Blocks blocks = equal_blocks(shares[static_cast<size_t>(grid.place_of(grid.rank))], grid.machines);
  int round = direct_reduce_scatter(out, 0, grid.inside(), shares);
  round = ring_reduce_scatter(out, round, grid.across(), blocks, 1);
  round = ring_all_gather(out, round, grid.across(), blocks, 1);
  direct_all_gather(out, round, grid.inside(), shares);
}

void hierarchical_reduce_form(const CollectiveRequest& request, StepWriter& out) {
  Grid grid(request);
  int home = grid.machine_of(request.root);
  Blocks shares = equal_blocks(whole(request), grid.per_machine);
  const Range& mine = shares[static_cast<size_t>(grid.place_of(grid.rank))];
  int round = direct_reduce_scatter(out, 0, grid.inside(), shares);
  // The number of pieces, hence of rounds, must be the same for all places: the largest share determines it.
  int pieces = static_cast<int>(pieces_of(shares.back(), request.piece).size());
  round = chain(out, round, grid.chain_from(home + 1), equal_blocks(mine, pieces), Action::kCombine);
  direct_gather(out, round, only_in(grid, home), shares, grid.place_of(request.root));
}

void hierarchical_broadcast_form(const CollectiveRequest& request, StepWriter& out) {
  Grid grid(request);
  int home = grid.machine_of(request.root);
  Blocks shares = equal_blocks(whole(request), grid.per_machine);
  const Range& mine = shares[static_cast<size_t>(grid.place_of(grid.rank))];
  int round = direct_scatter(out, 0, only_in(grid, home), shares, grid.place_of(request.root));
  int pieces = static_cast<int>(pieces_of(shares.back(), request.piece).size());
  round = chain(out, round, grid.chain_from(home), equal_blocks(mine, pieces), Action::kReceive);
  direct_all_gather(out, round, grid.inside(), shares);
}

void hierarchical_reduce_scatter_form(const CollectiveRequest& request, StepWriter& out) {
  Grid grid(request);
  Blocks parts = part_blocks(request);
  // Inside the machine each place collects its part of every machine's results, all in the first round.
  for (int m = 0; m < grid.machines; ++m)
    direct_reduce_scatter(out, 0, grid.inside(), grid.of_machine(parts, m));
  ring_reduce_scatter(out, grid.per_machine > 1, grid.across(), grid.of_place(parts), 0);
}

void hierarchical_all_gather_form(const CollectiveRequest& request, StepWriter& out) {
  Grid grid(request);
  Blocks parts = part_blocks(request);
  int round = ring_all_gather(out, 0, grid.across(), grid.of_place(parts), 0);
  for (int m = 0; m < grid.machines; ++m)
    direct_all_gather(out, round, grid.inside(), grid.of_machine(parts, m));
}

// The parts of a machine are adjacent: they are sent as one message.
void hierarchical_gather_form(const CollectiveRequest& request, StepWriter& out) {
  Grid grid(request);
  Blocks parts = part_blocks(request);
  int place = grid.place_of(request.root);
  Blocks machines;
  for (int m = 0; m < grid.machines; ++m)
    machines.push_back(span_of(parts, m * grid.per_machine, grid.per_machine));
  int round = direct_gather(out, 0, grid.inside(), grid.of_machine(parts, grid.machine_of(grid.rank)), place);
  direct_gather(out, round, grid.across(place), machines, grid.machine_of(request.root));
}

void hierarchical_scatter_form(const CollectiveRequest& request, StepWriter& out) {
  Grid grid(request);
  Blocks parts = part_blocks(request);
  int place = grid.place_of(request.root);
  Blocks machines;
  for (int m = 0; m < grid.machines; ++m)
    machines.push_back(span_of(parts, m * grid.per_machine, grid.per_machine));
  int round = direct_scatter(out, 0, grid.across(place), machines, grid.machine_of(request.root));
  direct_scatter(out, round, grid.inside(), grid.of_machine(parts, grid.machine_of(grid.rank)), place);
}

void hierarchical_barrier_form(const CollectiveRequest& request, StepWriter& out) {
  Grid grid(request);
  Blocks nothing(static_cast<size_t>(request.size));
  int round = direct_gather(out, 0, grid.inside(), nothing, 0);
  round = direct_all_gather(out, round, grid.across(0), nothing);
  direct_scatter(out, round, grid.inside(), nothing, 0);
}

}  // namespace yoke::plan
