#include "yoke/parallel/schedule/pipeline/rounds.h"

#include <algorithm>

#include "yoke/base/error.h"

namespace yoke::parallel {

Rounds::~Rounds() {
  auto done = [](const Round& round) { return std::ranges::all_of(round.moving, &comm::Pending::done); };
  give_up_.before_wait([&] { return std::ranges::all_of(rounds_, done); }, "a pipeline step");
  for (const Round& round : rounds_) {
    for (const comm::Pending& one : round.moving) {
      try {
        one.wait();
      } catch (const std::exception&) {  // already reported to whoever requested it
      }
    }
  }
}

// Point to point instead of a collective: stages reach a round at different times, and a collective would
// have to keep its place in the order of all collectives of the communicator.
void Rounds::tell(Numbers own) {
  Round& round = rounds_.emplace_back();
  round.own = std::move(own);
  round.all.assign(static_cast<size_t>(comm_.size()), Numbers(round.own.size()));
  for (int rank = 0; rank < comm_.size(); ++rank) {
    if (rank == comm_.rank()) continue;
    Numbers& place = round.all[static_cast<size_t>(rank)];
    round.moving.push_back(comm_.receive(place, rank, tag_, {.name = name_}));
    round.moving.push_back(comm_.send(round.own, rank, tag_, {.name = name_}));
  }
}

std::vector<Rounds::Numbers> Rounds::hear() {
  YOKE_CHECK(!rounds_.empty(), "no round of '{}' was begun", name_);
  Round& round = rounds_.front();
  for (const comm::Pending& one : round.moving) one.wait();
  std::vector<Numbers> all = std::move(round.all);
  all[static_cast<size_t>(comm_.rank())] = std::move(round.own);
  rounds_.pop_front();
  return all;
}

}  // namespace yoke::parallel
