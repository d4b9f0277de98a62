// A few numbers of every rank, round by round, told while the pipeline runs on: nobody waits for a round
// before it is asked for.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "yoke/comm/communicator.h"

namespace yoke::parallel {

// Used by one thread. Its messages have a tag of their own on the communicator.
class Rounds {
 public:
  using Numbers = std::vector<double>;

  // The communicator must outlive it. `name` shows in errors.
  Rounds(comm::Communicator& comm, int tag, std::string name)
      : comm_(comm), tag_(tag), name_(std::move(name)) {}
  Rounds(const Rounds&) = delete;
  Rounds& operator=(const Rounds&) = delete;
  ~Rounds();  // waits: memory must stay while data moves

  // Begins a round and returns at once. All ranks begin every round, with as many numbers each.
  void tell(Numbers own);
  // Rounds that were begun and not asked for.
  size_t waiting() const { return rounds_.size(); }
  // What each rank told in the oldest of those, by rank: waits until all have. Throws CommError.
  std::vector<Numbers> hear();

 private:
  struct Round {
    Numbers own;
    std::vector<Numbers> all;  // by rank
    std::vector<comm::Pending> moving;
  };
  comm::Communicator& comm_;
  int tag_;
  std::string name_;
  std::deque<Round> rounds_;
};

}  // namespace yoke::parallel
