#include "yoke/comm/shared/collectives.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/comm/shared/combine.h"

namespace yoke::comm::shared {
namespace {

// Up to this size one phase with copies is faster than two without.
constexpr size_t kSmallBytes = 16 << 10;
constexpr double kQuietSeconds = 10;

}  // namespace

Collectives::Collectives(Control control, int rank, std::shared_ptr<AddressSpace> space,
                         std::shared_ptr<cluster::Failure> failure, bool crowded)
    : control_(control),
      rank_(rank),
      size_(control.size()),
      space_(std::move(space)),
      phases_(control, rank, std::move(failure), crowded) {}

void Collectives::run(const Operation& operation, const Deadline& deadline) {
  if (operation.algorithm && *operation.algorithm != plan::Algorithm::kDirect)
    throw ConfigError("backend '{}' only supports the algorithm 'direct'.", space_->name());
  DataType type = operation.descriptor.type;
  Task task{operation,
            type,
            size_of(type),
            static_cast<const std::byte*>(operation.input.data),
            static_cast<std::byte*>(operation.output.data),
            deadline};
  list_works(operation, size_, list_);
  if (size_ == 1) return alone(task);
  try {
    phases_.check();
    run_together(task);
  } catch (...) {
    abandon();
    throw;
  }
}

void Collectives::meet(const Deadline& deadline) {
  phases_.announce();
  phases_.wait(deadline);
}

std::vector<std::byte*> Collectives::exchange(const Memory& memory, const Deadline& deadline) {
  phases_.own_post().output = space_->locate(memory.data.get(), memory.bytes);
  meet(deadline);
  std::vector<std::byte*> places;
  for (int r = 0; r < size_; ++r) places.push_back(space_->resolve(phases_.post(r).output, memory.bytes));
  return places;
}

void Collectives::alone(const Task& task) {
  for (const Work& work : list_.works) {
    const void* from = task.input + static_cast<size_t>(work.source_offset) * task.element;
    void* to = task.output + static_cast<size_t>(work.out_offset) * task.element;
    combine({&to, 1}, {&from, 1}, static_cast<size_t>(work.count), task.type, task.operation.reduce);
  }
}

void Collectives::run_together(const Task& task) {
  size_t given = static_cast<size_t>(list_.longest) * task.element * static_cast<size_t>(list_.lanes);
  if (given <= kSmallBytes) {
    publish(task, window(task), 0, phases_.own_slot());
    announce(task, /*with_places=*/false);
    phases_.wait(task.deadline);
    compare();
    consume(task, window(task), 0);
    return;
  }
  announce(task, /*with_places=*/true);
  phases_.wait(task.deadline);
  compare();
  if (all_in_reach(task.operation))
    in_place(task);
  else
    through_slots(task);
}

void Collectives::announce(const Task& task, bool with_places) {
  const Operation& operation = task.operation;
  Post& post = phases_.own_post();
  post.fingerprint = operation.fingerprint;
  if (with_places) {
    post.input =
        uses_input(operation, rank_) ? space_->locate(task.input, operation.input.bytes()) : Location{};
    post.output =
        uses_output(operation, rank_) ? space_->locate(task.output, operation.output.bytes()) : Location{};
  }
  std::memcpy(&phases_.own_descriptor(), &operation.descriptor, sizeof(Descriptor));
  phases_.announce();
}

// Every rank compares the same posts in the same order, so that all throw the same text.
void Collectives::compare() const {
  uint64_t first = phases_.post(0).fingerprint;
  for (int r = 1; r < size_; ++r) {
    if (phases_.post(r).fingerprint == first) continue;
    throw MismatchError("{}", describe_mismatch(0, phases_.descriptor(0), r, phases_.descriptor(r)));
  }
}

bool Collectives::all_in_reach(const Operation& operation) const {
  for (int r = 0; r < size_; ++r) {
    if (uses_input(operation, r) && !phases_.post(r).input.reachable()) return false;
    if (uses_output(operation, r) && !phases_.post(r).output.reachable()) return false;
  }
  return true;
}

void Collectives::abandon() {
  Head& head = control_.head();
  uint32_t nobody = 0;
  head.abandoned.compare_exchange_strong(nobody, static_cast<uint32_t>(rank_) + 1, std::memory_order_seq_cst);
  head.wakes.fetch_add(1, std::memory_order_seq_cst);
  wake_all(head.wakes);
  if (space_->outlives_owner()) return;
  // The caller may free its buffers once it has our exception: wait for ranks that are working in them. A
  // rank sets `active` before it checks `abandoned`, so none can start after this loop.
  Deadline quiet = Deadline::after(kQuietSeconds);
  for (int r = 0; r < size_; ++r) {
    while (r != rank_ && control_.rank(r).active.load(std::memory_order_seq_cst) != 0 && !quiet.passed())
      ::sched_yield();
  }
}

}  // namespace yoke::comm::shared
