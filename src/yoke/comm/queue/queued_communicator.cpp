#include "yoke/comm/queue/queued_communicator.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <exception>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/comm/give_up.h"
#include "yoke/comm/queue/operation_queue.h"
#include "yoke/comm/queue/request.h"
#include "yoke/comm/queue/transfer_queue.h"

namespace yoke::comm {
namespace {

class QueuedCommunicator final : public Communicator {
 public:
  QueuedCommunicator(std::unique_ptr<Backend> backend, GroupInfo group, JobLink job)
      : backend_(std::move(backend)),
        group_(std::move(group)),
        job_(std::move(job)),
        check_{group_.rank, group_.size},
        operations_(*backend_, group_, job_),
        transfers_(*backend_, group_, job_),
        exceptions_(std::uncaught_exceptions()),
        give_up_(*this) {}

  // Reports how many operations this rank has completed before its connections close, so that the other ranks
  // do not take the disconnect for a failure. Not during unwinding: then it is one, and is reported
  // elsewhere.
  ~QueuedCommunicator() override {
    const bool unwinding = std::uncaught_exceptions() > exceptions_;
    give_up_.before_wait([&] { return !operations_.busy() && !transfers_.busy(); }, "its part");
    if (job_.closed && !job_.failure->set() && !unwinding)
      job_.closed(group_.id, group_.size, static_cast<int64_t>(number_));
  }

  int rank() const override { return group_.rank; }
  int size() const override { return group_.size; }
  const std::string& name() const override { return group_.name; }
  const std::string& backend() const override { return backend_->name(); }
  Backend& below() { return *backend_; }

  Pending all_reduce(Buffer data, ReduceOp op, const OpOptions& options) override {
    return issue(check_.all_reduce(data, op), options);
  }
  Pending reduce(Buffer data, int root, ReduceOp op, const OpOptions& options) override {
    return issue(check_.reduce(data, root, op), options);
  }
  Pending reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op, const OpOptions& options) override {
    return issue(check_.reduce_scatter(input, output, op), options);
  }
  Pending all_gather(ConstBuffer input, Buffer output, std::span<const int64_t> counts,
                     const OpOptions& options) override {
    return issue(check_.all_gather(input, output, counts), options);
  }
  Pending all_to_all(ConstBuffer input, Buffer output, const OpOptions& options) override {
    return issue(check_.all_to_all(input, output), options);
  }
  Pending broadcast(Buffer data, int root, const OpOptions& options) override {
    return issue(check_.broadcast(data, root), options);
  }
  Pending gather(ConstBuffer input, Buffer output, int root, const OpOptions& options) override {
    return issue(check_.gather(input, output, root), options);
  }
  Pending scatter(ConstBuffer input, Buffer output, int root, const OpOptions& options) override {
    return issue(check_.scatter(input, output, root), options);
  }
  Pending barrier(const OpOptions& options) override { return issue(check_.barrier(), options); }

  Pending send(ConstBuffer data, int peer, int tag, const OpOptions& options) override {
    return transfer(check_.transfer(/*is_send=*/true, data, peer, tag), options);
  }
  Pending receive(Buffer data, int peer, int tag, const OpOptions& options) override {
    return transfer(check_.transfer(/*is_send=*/false, data, peer, tag), options);
  }

  std::unique_ptr<Communicator> split(int color, int key, const std::string& group_name) override;

  Memory allocate(size_t bytes) override { return backend_->allocate(bytes); }
  Memory allocate_common(size_t bytes) override;
  Counters counters() const override {
    Counters counters = backend_->counters();
    counters.operations = static_cast<int64_t>(number_);
    return counters;
  }

  void abandon(const std::string& reason) noexcept override;

 private:
  double timeout(const OpOptions& options) const {
    return options.timeout > 0 ? options.timeout : group_.timeout;
  }

  Pending issue(Operation operation, const OpOptions& options) {
    operation.algorithm = options.algorithm;
    Descriptor& descriptor = operation.descriptor;
    descriptor.number = ++number_;
    descriptor.set_name(options.name);
    descriptor.set_shape(options.shape);
    operation.fingerprint = descriptor.fingerprint();
    return operations_.issue(std::move(operation), timeout(options));
  }

  Pending transfer(Transfer transfer, const OpOptions& options) {
    transfer.descriptor.set_name(options.name);
    transfer.descriptor.set_shape(options.shape);
    return transfers_.issue(transfer, timeout(options));
  }

  std::unique_ptr<Backend> backend_;
  GroupInfo group_;
  JobLink job_;
  RequestChecker check_;
  uint64_t number_ = 0;
  uint64_t splits_ = 0;
  OperationQueue operations_;
  TransferQueue transfers_;
  int exceptions_;
  GiveUpOnException give_up_;
};

std::unique_ptr<Communicator> QueuedCommunicator::split(int color, int key, const std::string& group_name) {
  std::vector<int64_t> mine = {color, key};
  std::vector<int64_t> all(static_cast<size_t>(2 * size()));
  all_gather(mine, all, {}, {.name = "split"}).wait();
  std::vector<int> members;
  for (int r = 0; r < size(); ++r) {
    if (all[static_cast<size_t>(2 * r)] == color) members.push_back(r);
  }
  auto key_of = [&](int r) { return all[static_cast<size_t>(2 * r + 1)]; };
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return key_of(a) < key_of(b); });
  uint64_t parts[] = {group_.id, ++splits_, static_cast<uint64_t>(color)};
  if (color < 0) return nullptr;

  GroupInfo group = group_;
  group.name = group_name;
  group.size = static_cast<int>(members.size());
  group.rank = static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
  group.id = XXH3_64bits(parts, sizeof(parts));
  if (!group_.ranks.empty()) {
    for (int& member : group.ranks = members) member = group_.ranks[static_cast<size_t>(member)];
  }
  JobLink job = job_;
  // Heartbeats carry operation numbers of the world; those of a sub-group would be mistaken for them.
  job.entered = nullptr;
  job.who_is_behind = nullptr;
  auto backend = backend_->split(members, group.id, Deadline::after(group_.timeout));
  return make_queued(std::move(backend), std::move(group), std::move(job));
}

// Setting the job's failure ends all waits of all backends; the coordinator forwards it to the other ranks.
void QueuedCommunicator::abandon(const std::string& reason) noexcept {
  if (job_.failure->set()) return;
  try {
    cluster::FailureReport report;
    auto own = static_cast<size_t>(group_.rank);
    report.rank = own < group_.ranks.size() ? group_.ranks[own] : -1;
    report.kind = "exception";
    report.what = fmt::format("rank {} gave up: {}", report.rank < 0 ? group_.rank : report.rank, reason);
    job_.failure->raise(report);
    backend_->wake();
    if (job_.fail) job_.fail(report, {});
  } catch (const std::exception& error) {  // out of memory, or the coordinator is gone
    log::warn("giving up ({}): {}", reason, error.what());
  }
}

Memory QueuedCommunicator::allocate_common(size_t bytes) {
  if (!backend_->shares_memory()) return {};
  Backend::Place place;
  Memory memory;
  if (rank() == 0) memory = backend_->make_common(bytes, place);
  std::vector<int64_t> told = {place.heap, place.offset, static_cast<int64_t>(bytes)};
  broadcast(told, 0, {.name = "common memory"}).wait();
  if (told[2] != static_cast<int64_t>(bytes))
    throw ConfigError("shared memory of {} bytes on rank {}, but {} on rank 0", bytes, rank(), told[2]);
  if (rank() != 0) memory = backend_->open_common({told[0], told[1]}, bytes);
  return memory;
}

}  // namespace

cluster::Wait wait_of(const Descriptor& descriptor, const GroupInfo& group, int peer) {
  cluster::Wait wait;
  wait.group = group.id;
  wait.group_name = group.name;
  wait.number = peer < 0 ? static_cast<int64_t>(descriptor.number) : 0;
  wait.what = descriptor.text();
  wait.name = descriptor.short_text();
  if (peer < 0)
    wait.ranks = group.ranks;
  else if (static_cast<size_t>(peer) < group.ranks.size())
    wait.ranks = {group.ranks[static_cast<size_t>(peer)]};
  return wait;
}

std::unique_ptr<Communicator> make_queued(std::unique_ptr<Backend> backend, GroupInfo group, JobLink job) {
  YOKE_CHECK(job.failure && job.recorder, "a communicator needs a failure and a recorder");
  return std::make_unique<QueuedCommunicator>(std::move(backend), std::move(group), std::move(job));
}

Backend* backend_below(Communicator& comm) {
  auto* queued = dynamic_cast<QueuedCommunicator*>(&comm);
  return queued ? &queued->below() : nullptr;
}

}  // namespace yoke::comm
