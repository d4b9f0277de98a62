// Gathers a few numbers of every rank, round by round, while the pipeline continues: a round is waited for
// only when its result is requested.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "yoke/comm/communicator.h"
#include "yoke/comm/give_up.h"

namespace yoke::parallel {

// One thread. Its messages use their own tag on the communicator.
class Rounds {
 public:
  using Numbers = std::vector<double>;

  // The communicator must outlive it. `name` is shown in errors.
  Rounds(comm::Communicator& comm, int tag, std::string name)
      : comm_(comm), give_up_(comm), tag_(tag), name_(std::move(name)) {}
  Rounds(const Rounds&) = delete;
  Rounds& operator=(const Rounds&) = delete;
  // Waits, because memory must stay while data moves; during unwinding it abandons the communicator first.
  ~Rounds();

  // Starts a round; non-blocking. All ranks start every round, with equally many numbers.
  void tell(Numbers own);
  // Rounds started but not yet received.
  size_t waiting() const { return rounds_.size(); }
  // The numbers of the oldest of those, by rank; blocks until all ranks have started it. Throws CommError.
  std::vector<Numbers> hear();

 private:
  struct Round {
    Numbers own;
    std::vector<Numbers> all;  // by rank
    std::vector<comm::Pending> moving;
  };
  comm::Communicator& comm_;
  comm::GiveUpOnException give_up_;
  int tag_;
  std::string name_;
  std::deque<Round> rounds_;
};

}  // namespace yoke::parallel
