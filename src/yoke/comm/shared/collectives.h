// Collectives over shared memory.
//
// Small ones go through the slots of the control block: copy in, one phase, combine. Large ones work in place
// if every rank can access every buffer: after one phase all ranks claim pieces of the work until none is
// left and write each result directly to all outputs; a second phase ends the operation. Otherwise they go
// through the slots in rounds that fit in cache. Contributions are always combined in rank order, starting
// with rank 0.
//
// One thread at a time.
#pragma once

#include <array>
#include <memory>
#include <span>

#include "yoke/comm/backend.h"
#include "yoke/comm/shared/phases.h"
#include "yoke/comm/shared/works.h"

namespace yoke::comm::shared {

class Collectives {
 public:
  Collectives(Control control, int rank, std::shared_ptr<AddressSpace> space,
              std::shared_ptr<cluster::Failure> failure, bool crowded);

  // See Backend::run.
  void run(const Operation& operation, const Deadline& deadline);

  // Barrier; compares no descriptors.
  void meet(const Deadline& deadline);
  // Address on this rank of every rank's `memory`.
  std::vector<std::byte*> exchange(const Memory& memory, const Deadline& deadline);

 private:
  // One operation, as this rank sees it.
  struct Task {
    const Operation& operation;
    DataType type;
    size_t element;  // bytes
    const std::byte* input;
    std::byte* output;
    const Deadline& deadline;
  };
  using Bases = std::array<std::byte*, kMaxRanks>;

  void run_together(const Task& task);
  void alone(const Task& task);
  void announce(const Task& task, bool with_places);
  void compare() const;
  bool all_in_reach(const Operation& operation) const;

  void in_place(const Task& task);
  void do_piece(const Task& task, const Work& work, int64_t begin, int64_t count, const Bases& inputs,
                const Bases& outputs) const;
  int64_t claim();

  int64_t window(const Task& task) const;
  void through_slots(const Task& task);
  void publish(const Task& task, int64_t window, int64_t round, std::byte* slot) const;
  void consume(const Task& task, int64_t window, int64_t round) const;
  void all_reduce_in_two_hops(const Task& task, int64_t window);

  void abandon();

  Control control_;
  int rank_;
  int size_;
  std::shared_ptr<AddressSpace> space_;
  Phases phases_;
  WorkList list_;
};

}  // namespace yoke::comm::shared
