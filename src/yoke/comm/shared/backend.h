// Backend for ranks that share memory: threads of one process ("local") or processes of one machine ("shm").
//
// bytes_sent and bytes_received follow the accounting of works.h, however the data really moved; point to
// point counts payloads.
#pragma once

#include <atomic>
#include <memory>

#include "yoke/comm/backend.h"
#include "yoke/comm/shared/collectives.h"
#include "yoke/comm/shared/transfers.h"

namespace yoke::comm::shared {

// What a rank needs to join a group whose control block exists.
struct GroupPlace {
  int rank = 0;
  int size = 1;
  std::shared_ptr<AddressSpace> space;
  std::shared_ptr<cluster::Failure> failure;
  std::byte* control = nullptr;
  Memory owned;          // memory of the control block, on the rank that allocated it
  bool crowded = false;  // more ranks than cores
};

// Whether the ranks have fewer cores than ranks, from the CPU masks in the control block.
bool is_crowded(const Control& control);
// Stores this thread's CPU mask and waits until all ranks have joined. Throws CommError.
void join(const Control& control, int rank, cluster::Failure& failure, const Deadline& deadline);
// Throws ConfigError for groups of more than kMaxRanks.
void check_group_size(int size);

class SharedBackend final : public Backend {
 public:
  explicit SharedBackend(GroupPlace place);
  ~SharedBackend() override;

  const std::string& name() const override { return place_.space->name(); }
  void run(const Operation& operation, Deadline deadline) override;
  bool advance(Transfer& transfer) override;
  void wait_for(std::span<Transfer* const> transfers, Deadline deadline) override;
  void wake() override { transfers_->wake(); }
  std::unique_ptr<Backend> split(std::span<const int> members, uint64_t group, Deadline deadline) override;
  Memory allocate(size_t bytes) override { return place_.space->allocate(bytes); }
  bool shares_memory() const override { return true; }
  Memory make_common(size_t bytes, Place& place) override;
  Memory open_common(const Place& place, size_t bytes) override;
  Counters counters() const override;

  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  // Barrier without comparing descriptors.
  void meet(const Deadline& deadline) { collectives_.meet(deadline); }
  // Exchanges addresses: element r is where rank r's `memory` is mapped on this rank. Collective. Throws
  // CommError if one of them is not shared.
  std::vector<std::byte*> everybodys(const Memory& memory, const Deadline& deadline);

 private:
  Location invitation(int leader, uint64_t group, const Deadline& deadline) const;
  void invite(const Location& control, uint64_t group);

  GroupPlace place_;
  Control control_;
  Collectives collectives_;
  std::unique_ptr<Transfers> transfers_;
  std::atomic<int64_t> operations_{0}, sent_{0}, received_{0}, messages_{0};
};

}  // namespace yoke::comm::shared
