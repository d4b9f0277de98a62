#include "yoke/comm/shared/backend.h"

#include <algorithm>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/comm/shared/common_memory.h"

namespace yoke::comm::shared {

void check_group_size(int size) {
  if (size >= 1 && size <= kMaxRanks) return;
  throw ConfigError("a group of {} ranks cannot share memory. Accepted: 1 to {}; use backend 'tcp' for more.",
                    size, kMaxRanks);
}

// The union of the ranks' CPU masks: pinned ranks may have fewer cores than the machine.
bool is_crowded(const Control& control) {
  cpu_set_t together;
  CPU_ZERO(&together);
  for (int r = 0; r < control.size(); ++r) CPU_OR(&together, &together, &control.rank(r).cpus);
  return CPU_COUNT(&together) < control.size();
}

void join(const Control& control, int rank, cluster::Failure& failure, const Deadline& deadline) {
  if (::sched_getaffinity(0, sizeof(cpu_set_t), &control.rank(rank).cpus) != 0)
    CPU_ZERO(&control.rank(rank).cpus);
  Word& joined = control.head().joined;
  control.head().users.fetch_add(1, std::memory_order_relaxed);
  joined.fetch_add(1, std::memory_order_acq_rel);
  wake_all(joined);
  for (;;) {
    uint32_t seen = joined.load(std::memory_order_acquire);
    if (seen == static_cast<uint32_t>(control.size())) return;
    failure.check("forming a group in shared memory");
    if (deadline.passed())
      throw CommError("forming a group in shared memory: {} of {} ranks joined within {:.3g} s", seen,
                      control.size(), deadline.limit());
    sleep_slice(joined, seen, deadline);
  }
}

SharedBackend::SharedBackend(GroupPlace place)
    : place_(std::move(place)),
      control_(place_.control, place_.size),
      collectives_(control_, place_.rank, place_.space, place_.failure, place_.crowded),
      transfers_(
          std::make_unique<Transfers>(control_, place_.rank, place_.space, place_.failure, place_.crowded)) {}

SharedBackend::~SharedBackend() {
  transfers_.reset();  // streams it leaves behind are kept as long as the group has users
  Word& users = control_.head().users;
  users.fetch_sub(1, std::memory_order_acq_rel);
  if (place_.owned.data) place_.space->retire(std::move(place_.owned), users);
}

void SharedBackend::run(const Operation& operation, Deadline deadline) {
  collectives_.run(operation, deadline);
  Counters moved = traffic(operation, place_.rank, place_.size);
  operations_.fetch_add(moved.operations, std::memory_order_relaxed);
  sent_.fetch_add(moved.bytes_sent, std::memory_order_relaxed);
  received_.fetch_add(moved.bytes_received, std::memory_order_relaxed);
  messages_.fetch_add(moved.messages_sent, std::memory_order_relaxed);
}

bool SharedBackend::advance(Transfer& transfer) {
  if (!transfers_->advance(transfer)) return false;
  operations_.fetch_add(1, std::memory_order_relaxed);
  (transfer.is_send ? sent_ : received_)
      .fetch_add(static_cast<int64_t>(transfer.bytes), std::memory_order_relaxed);
  if (transfer.is_send) messages_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void SharedBackend::wait_for(std::span<Transfer* const>, Deadline deadline) {
  transfers_->wait_for(deadline);
}

Counters SharedBackend::counters() const {
  Counters now;
  now.operations = operations_.load(std::memory_order_relaxed);
  now.bytes_sent = sent_.load(std::memory_order_relaxed);
  now.bytes_received = received_.load(std::memory_order_relaxed);
  now.messages_sent = messages_.load(std::memory_order_relaxed);
  if (now.operations > 0) now.algorithm = plan::Algorithm::kDirect;  // it has no other
  return now;
}

Memory SharedBackend::make_common(size_t bytes, Place& place) {
  Location location;
  Memory memory = shared::make_common(place_.space, bytes, place_.size, location);
  place = {location.heap, static_cast<int64_t>(location.offset)};
  return memory;
}

Memory SharedBackend::open_common(const Place& place, size_t bytes) {
  Location location{static_cast<int32_t>(place.heap), 0, static_cast<uint64_t>(place.offset)};
  return shared::open_common(place_.space, location, bytes);
}

std::vector<std::byte*> SharedBackend::everybodys(const Memory& memory, const Deadline& deadline) {
  return collectives_.exchange(memory, deadline);
}

std::unique_ptr<Backend> SharedBackend::split(std::span<const int> members, uint64_t group,
                                              Deadline deadline) {
  auto me = std::find(members.begin(), members.end(), place_.rank);
  YOKE_CHECK(me != members.end(), "rank {} called split() for a group that it is not a member of",
             place_.rank);
  GroupPlace child = place_;
  child.owned = {};
  child.rank = static_cast<int>(me - members.begin());
  child.size = static_cast<int>(members.size());
  size_t bytes = Control::bytes(child.size);
  if (child.rank == 0) {
    child.owned = place_.space->allocate_inside(bytes);
    child.control = static_cast<std::byte*>(child.owned.data.get());
    invite(place_.space->locate(child.control, bytes), group);
  } else {
    child.control = place_.space->resolve(invitation(members[0], group, deadline), bytes);
  }
  join(Control(child.control, child.size), child.rank, *place_.failure, deadline);
  return std::make_unique<SharedBackend>(std::move(child));
}

// The leader returns from split() only after all members have joined, so its next invitation cannot overwrite
// one that a member still looks for.
void SharedBackend::invite(const Location& control, uint64_t group) {
  RankBlock& own = control_.rank(place_.rank);
  own.invited_to = control;
  own.invited_group.store(group, std::memory_order_release);
  own.invitations.fetch_add(1, std::memory_order_acq_rel);
  wake_all(own.invitations);
}

Location SharedBackend::invitation(int leader, uint64_t group, const Deadline& deadline) const {
  RankBlock& block = control_.rank(leader);
  for (;;) {
    uint32_t seen = block.invitations.load(std::memory_order_acquire);
    if (seen != 0 && block.invited_group.load(std::memory_order_acquire) == group) return block.invited_to;
    place_.failure->check("split");
    if (deadline.passed())
      throw CommError("split: rank {} has not created the group within {:.3g} s", leader, deadline.limit());
    sleep_slice(block.invitations, seen, deadline);
  }
}

}  // namespace yoke::comm::shared
