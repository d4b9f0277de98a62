#include "yoke/comm/hierarchical/hierarchical.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "yoke/comm/sum_of_shares.h"
#include "yoke/kernels/reduce.h"

namespace yoke::comm {
namespace {

using plan::Algorithm;
using plan::Collective;

// Up to this size every rank sends everything to the ranks of its index: two short steps instead of three.
constexpr size_t kSmallBytes = 16 << 10;
// Seconds per turn when waiting on two backends alternately.
constexpr double kTurn = 0.0005;

bool is_half(DataType type) {
  return type == DataType::kFloat16 || type == DataType::kBFloat16;
}

// Mixes group id and a number into a new id (SplitMix64's finaliser).
uint64_t derived(uint64_t group, uint64_t number) {
  uint64_t x = group + (number + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

Buffer part(const Buffer& whole, int64_t begin, int64_t count) {
  auto* data = static_cast<std::byte*>(whole.data) + static_cast<size_t>(begin) * size_of(whole.type);
  return {data, count, whole.type};
}

class HierarchicalBackend final : public Backend {
 public:
  HierarchicalBackend(std::unique_ptr<Backend> local, std::unique_ptr<Backend> cross,
                      std::unique_ptr<Backend> flat, const MachineLayout& layout)
      : local_(std::move(local)), cross_(std::move(cross)), flat_(std::move(flat)), layout_(layout) {}

  const std::string& name() const override { return name_; }
  void run(const Operation& operation, Deadline deadline) override;
  bool advance(Transfer& transfer) override;
  void wait_for(std::span<Transfer* const> transfers, Deadline deadline) override;
  void wake() override {
    local_->wake();
    flat_->wake();
  }
  std::unique_ptr<Backend> split(std::span<const int> members, uint64_t group, Deadline deadline) override;
  Memory allocate(size_t bytes) override { return local_->allocate(bytes); }
  Counters counters() const override;

 private:
  // One phase of the operation `whole`, on some of the ranks.
  struct Phase {
    Collective op;
    ConstBuffer input;
    Buffer output;
    int root = 0;
    ReduceOp reduce = ReduceOp::kSum;
    std::vector<int64_t> parts = {};
  };
  void phase(Backend& backend, const Operation& whole, Phase phase, Deadline deadline) const;
  void phase_in_place(Backend& backend, Collective op, const Operation& whole, const Buffer& data, int root,
                      ReduceOp reduce, Deadline deadline) const;

  void all_reduce(const Operation& operation, Deadline deadline);
  void all_reduce_small(const Operation& operation, const Buffer& data, Deadline deadline);
  void all_reduce_large(const Operation& operation, const Buffer& data, Deadline deadline);
  void all_reduce_by_leaders(const Operation& operation, Deadline deadline);
  void broadcast(const Operation& operation, Deadline deadline);
  void reduce(const Operation& operation, Deadline deadline);
  void all_gather(const Operation& operation, Deadline deadline);
  void reduce_scatter(const Operation& operation, Deadline deadline);
  void run_flat(Operation operation, Deadline deadline);
  bool run_by_machines(const Operation& operation, Deadline deadline);
  void barrier(const Operation& operation, Deadline deadline);

  ReduceOp inner(const Operation& operation) const;
  void divide(const Operation& operation, const Buffer& data) const;
  bool is_leader() const { return layout_.index() == 0; }
  bool is_near(int peer) const { return layout_.machine_of(peer) == layout_.machine(); }

  const std::string name_ = "hierarchical";
  std::unique_ptr<Backend> local_;
  std::unique_ptr<Backend> cross_;
  std::unique_ptr<Backend> flat_;
  const MachineLayout layout_;
  std::atomic<int64_t> operations_{0};
  std::atomic<bool> by_machines_{false};  // of the last collective
  std::vector<std::byte> column_;
  std::vector<std::byte> columns_;
};

void HierarchicalBackend::run(const Operation& operation, Deadline deadline) {
  ++operations_;
  bool asked_otherwise = operation.algorithm && *operation.algorithm != Algorithm::kHierarchical;
  // With unequal machines the mean of the machines' means is not the mean.
  bool by_shares = overflows_as_sum(operation) && !layout_.equal() && !asked_otherwise &&
                   operation.op != Collective::kReduceScatter;
  if (by_shares)
    by_machines_ = run_by_machines(sum_of_shares(operation, layout_.size(), column_), deadline);
  else
    by_machines_ = !asked_otherwise && run_by_machines(operation, deadline);
  if (!by_machines_) run_flat(operation, deadline);
}

void HierarchicalBackend::run_flat(Operation operation, Deadline deadline) {
  if (operation.algorithm == Algorithm::kHierarchical) operation.algorithm.reset();
  flat_->run(operation, deadline);
}

// Returns false, having done nothing, for operations that gain nothing: in all_to_all, gather and scatter
// each byte has one destination and crosses machines once in any case.
bool HierarchicalBackend::run_by_machines(const Operation& operation, Deadline deadline) {
  const bool splits_evenly = layout_.equal();
  switch (operation.op) {
    case Collective::kAllReduce:
      all_reduce(operation, deadline);
      return true;
    case Collective::kBroadcast:
      broadcast(operation, deadline);
      return true;
    case Collective::kReduce:
      reduce(operation, deadline);
      return true;
    case Collective::kAllGather:
      if (splits_evenly) all_gather(operation, deadline);
      return splits_evenly;
    case Collective::kReduceScatter:
      if (splits_evenly) reduce_scatter(operation, deadline);
      return splits_evenly;
    case Collective::kBarrier:
      barrier(operation, deadline);
      return true;
    default:
      return false;
  }
}

void HierarchicalBackend::phase(Backend& backend, const Operation& whole, Phase phase,
                                Deadline deadline) const {
  Operation operation;
  operation.op = phase.op;
  operation.descriptor = whole.descriptor;
  operation.fingerprint = whole.fingerprint;
  operation.reduce = phase.reduce;
  operation.root = phase.root;
  operation.input = phase.input;
  operation.output = phase.output;
  operation.parts = std::move(phase.parts);
  backend.run(operation, deadline);
}

void HierarchicalBackend::phase_in_place(Backend& backend, Collective op, const Operation& whole,
                                         const Buffer& data, int root, ReduceOp reduce,
                                         Deadline deadline) const {
  phase(backend, whole, {op, data, data, root, reduce}, deadline);
}

// Means are sums, divided once at the end. fp16 sums could overflow before that: machines of equal size take
// means of means instead, others sum_of_shares() (run()).
ReduceOp HierarchicalBackend::inner(const Operation& operation) const {
  if (operation.reduce != ReduceOp::kMean) return operation.reduce;
  return is_half(operation.descriptor.type) && layout_.equal() ? ReduceOp::kMean : ReduceOp::kSum;
}

void HierarchicalBackend::divide(const Operation& operation, const Buffer& data) const {
  if (operation.reduce == ReduceOp::kMean && inner(operation) == ReduceOp::kSum)
    kernels::divide(data.data, static_cast<size_t>(data.count), data.type, layout_.size());
}

void HierarchicalBackend::all_reduce(const Operation& operation, Deadline deadline) {
  if (!layout_.equal()) return all_reduce_by_leaders(operation, deadline);
  const Buffer& data = operation.output;
  const auto ranks = static_cast<int64_t>(layout_.neighbours().size());
  if (data.bytes() <= kSmallBytes) return all_reduce_small(operation, data, deadline);
  int64_t shared = data.count / ranks * ranks;
  all_reduce_large(operation, part(data, 0, shared), deadline);
  if (shared < data.count) all_reduce_small(operation, part(data, shared, data.count - shared), deadline);
}

void HierarchicalBackend::all_reduce_small(const Operation& operation, const Buffer& data,
                                           Deadline deadline) {
  phase_in_place(*local_, Collective::kAllReduce, operation, data, 0, inner(operation), deadline);
  phase_in_place(*cross_, Collective::kAllReduce, operation, data, 0, inner(operation), deadline);
  divide(operation, data);
}

void HierarchicalBackend::all_reduce_large(const Operation& operation, const Buffer& data,
                                           Deadline deadline) {
  int64_t count = data.count / static_cast<int64_t>(layout_.neighbours().size());
  Buffer shard = part(data, count * layout_.index(), count);
  phase(*local_, operation, {Collective::kReduceScatter, data, shard, 0, inner(operation)}, deadline);
  phase_in_place(*cross_, Collective::kAllReduce, operation, shard, 0, inner(operation), deadline);
  divide(operation, shard);
  phase(*local_, operation, {Collective::kAllGather, shard, data}, deadline);
}

void HierarchicalBackend::all_reduce_by_leaders(const Operation& operation, Deadline deadline) {
  const Buffer& data = operation.output;
  phase_in_place(*local_, Collective::kReduce, operation, data, 0, inner(operation), deadline);
  if (is_leader()) {
    phase_in_place(*cross_, Collective::kAllReduce, operation, data, 0, inner(operation), deadline);
    divide(operation, data);
  }
  phase_in_place(*local_, Collective::kBroadcast, operation, data, 0, ReduceOp::kSum, deadline);
}

void HierarchicalBackend::broadcast(const Operation& operation, Deadline deadline) {
  const Buffer& data = operation.output;
  const int home = layout_.machine_of(operation.root);
  const bool at_home = layout_.machine() == home;
  // The rank of each machine that receives the data from outside.
  const int gate = layout_.equal() ? layout_.index_of(operation.root) : 0;
  auto inside = [&](int from) {
    phase_in_place(*local_, Collective::kBroadcast, operation, data, from, ReduceOp::kSum, deadline);
  };
  if (at_home) inside(layout_.index_of(operation.root));
  if (layout_.index() == gate)
    phase_in_place(*cross_, Collective::kBroadcast, operation, data, home, ReduceOp::kSum, deadline);
  if (!at_home) inside(gate);
}

void HierarchicalBackend::reduce(const Operation& operation, Deadline deadline) {
  const Buffer& data = operation.output;
  const int home = layout_.machine_of(operation.root);
  const int root_index = layout_.index_of(operation.root);
  const int gate = layout_.equal() ? root_index : 0;
  phase_in_place(*local_, Collective::kReduce, operation, data, gate, inner(operation), deadline);
  if (layout_.index() == gate)
    phase_in_place(*cross_, Collective::kReduce, operation, data, home, inner(operation), deadline);
  // Only the root's result counts; broadcast is the cheapest way to get it there. Other ranks' data is
  // unspecified.
  if (layout_.machine() == home && gate != root_index)
    phase_in_place(*local_, Collective::kBroadcast, operation, data, gate, ReduceOp::kSum, deadline);
  if (layout_.rank == operation.root) divide(operation, data);
}

// First between machines, among the ranks of equal index, so that no byte crosses machines twice; then inside
// each machine. The result is ordered by index, hence the copy at the end.
void HierarchicalBackend::all_gather(const Operation& operation, Deadline deadline) {
  const Buffer& out = operation.output;
  const size_t element = size_of(out.type);
  auto count_of = [&](int rank) {
    return operation.parts.empty() ? out.count / layout_.size() : operation.parts[static_cast<size_t>(rank)];
  };
  std::vector<int64_t> begins(1, 0);
  for (int rank = 0; rank < layout_.size(); ++rank) begins.push_back(begins.back() + count_of(rank));
  std::vector<int64_t> column_counts(layout_.neighbours().size(), 0), own_counts;
  for (const auto& machine : layout_.machines) {
    for (size_t i = 0; i < machine.size(); ++i) column_counts[i] += count_of(machine[i]);
    own_counts.push_back(count_of(machine[static_cast<size_t>(layout_.index())]));
  }
  const int64_t column = column_counts[static_cast<size_t>(layout_.index())];
  column_.resize(std::max(column_.size(), static_cast<size_t>(column) * element));
  columns_.resize(std::max(columns_.size(), out.bytes()));
  Buffer mine(column_.data(), column, out.type);
  Buffer all(columns_.data(), out.count, out.type);
  phase(*cross_, operation, {Collective::kAllGather, operation.input, mine, 0, ReduceOp::kSum, own_counts},
        deadline);
  phase(*local_, operation, {Collective::kAllGather, mine, all, 0, ReduceOp::kSum, column_counts}, deadline);
  const std::byte* from = columns_.data();
  for (size_t i = 0; i < column_counts.size(); ++i) {
    for (const auto& machine : layout_.machines) {
      size_t bytes = static_cast<size_t>(count_of(machine[i])) * element;
      Buffer to = part(out, begins[static_cast<size_t>(machine[i])], 0);
      if (bytes > 0) std::memcpy(to.data, from, bytes);
      from += bytes;
    }
  }
}

// Reorders the input so that the parts of all ranks of one index are adjacent. The local reduce_scatter then
// leaves each rank with the parts of its index, 1/m of the input, and only those cross machines.
void HierarchicalBackend::reduce_scatter(const Operation& operation, Deadline deadline) {
  const Buffer& out = operation.output;
  const auto* input = static_cast<const std::byte*>(operation.input.data);
  const size_t part_bytes = out.bytes();
  const size_t indices = layout_.neighbours().size();
  column_.resize(std::max(column_.size(), part_bytes * layout_.machines.size()));
  columns_.resize(std::max(columns_.size(), part_bytes * static_cast<size_t>(layout_.size())));
  std::byte* to = columns_.data();
  for (size_t index = 0; index < indices && part_bytes > 0; ++index) {
    for (const auto& machine : layout_.machines) {
      std::memcpy(to, input + part_bytes * static_cast<size_t>(machine[index]), part_bytes);
      to += part_bytes;
    }
  }
  Buffer all(columns_.data(), operation.input.count, out.type);
  Buffer mine(column_.data(), out.count * static_cast<int64_t>(layout_.machines.size()), out.type);
  phase(*local_, operation, {Collective::kReduceScatter, all, mine, 0, inner(operation)}, deadline);
  phase(*cross_, operation, {Collective::kReduceScatter, mine, out, 0, inner(operation)}, deadline);
  divide(operation, out);
}

void HierarchicalBackend::barrier(const Operation& operation, Deadline deadline) {
  Phase nothing{Collective::kBarrier, operation.input, operation.output};
  phase(*local_, operation, nothing, deadline);
  if (cross_) phase(*cross_, operation, nothing, deadline);
  if (!layout_.equal()) phase(*local_, operation, nothing, deadline);
}

bool HierarchicalBackend::advance(Transfer& transfer) {
  if (!is_near(transfer.peer)) return flat_->advance(transfer);
  const int peer = transfer.peer;
  transfer.peer = layout_.index_of(peer);
  struct Restore {
    Transfer& transfer;
    int peer;
    ~Restore() { transfer.peer = peer; }
  } restore{transfer, peer};
  return local_->advance(transfer);
}

void HierarchicalBackend::wait_for(std::span<Transfer* const> transfers, Deadline deadline) {
  std::vector<Transfer> near;
  std::vector<Transfer*> near_ones, far;
  for (Transfer* transfer : transfers) {
    if (!is_near(transfer->peer)) {
      far.push_back(transfer);
      continue;
    }
    near.push_back(*transfer);
    near.back().peer = layout_.index_of(transfer->peer);
  }
  for (Transfer& transfer : near) near_ones.push_back(&transfer);
  bool both = !near.empty() && !far.empty();
  if (!near.empty()) local_->wait_for(near_ones, both ? deadline.sooner(kTurn) : deadline);
  if (near.empty() || both) flat_->wait_for(far, both ? deadline.sooner(kTurn) : deadline);
}

std::unique_ptr<Backend> HierarchicalBackend::split(std::span<const int> members, uint64_t group,
                                                    Deadline deadline) {
  MachineLayout layout = layout_.of_members(members);
  std::vector<int> near;
  for (int member : layout.neighbours())
    near.push_back(layout_.index_of(members[static_cast<size_t>(member)]));
  bool one_machine = layout.machines.size() == 1;
  auto local = local_->split(
      near, one_machine ? group : derived(group, 1000 + static_cast<uint64_t>(layout.machine())), deadline);
  if (one_machine) return local;
  auto flat = flat_->split(members, group, deadline);
  auto cross = split_cross(*flat, layout, group, deadline);
  return make_hierarchical_backend(std::move(local), std::move(cross), std::move(flat), layout);
}

Counters HierarchicalBackend::counters() const {
  Counters sum;
  sum.operations = operations_;
  for (const Backend* backend : {local_.get(), cross_.get(), flat_.get()}) {
    if (!backend) continue;
    Counters one = backend->counters();
    sum.bytes_sent += one.bytes_sent;
    sum.bytes_received += one.bytes_received;
    sum.messages_sent += one.messages_sent;
  }
  if (operations_ > 0) sum.algorithm = by_machines_ ? Algorithm::kHierarchical : flat_->counters().algorithm;
  return sum;
}

}  // namespace

std::unique_ptr<Backend> make_hierarchical_backend(std::unique_ptr<Backend> local,
                                                   std::unique_ptr<Backend> cross,
                                                   std::unique_ptr<Backend> flat,
                                                   const MachineLayout& layout) {
  YOKE_CHECK(local && flat, "a hierarchy needs a local and a flat backend");
  YOKE_CHECK((cross != nullptr) == !layout.cross().empty(), "the cross backend does not fit the layout");
  return std::make_unique<HierarchicalBackend>(std::move(local), std::move(cross), std::move(flat), layout);
}

std::unique_ptr<Backend> split_cross(Backend& flat, const MachineLayout& layout, uint64_t group,
                                     Deadline deadline) {
  std::vector<int> ranks = layout.cross();
  if (ranks.empty()) return nullptr;
  return flat.split(ranks, derived(group, static_cast<uint64_t>(layout.index())), deadline);
}

}  // namespace yoke::comm
