// libyoke_mpi_openmpi.so and libyoke_mpi_mpich.so: the backend on MPI's C interface.
#include <algorithm>
#include <cstring>
#include <limits>

#include "yoke/comm/modules/module.h"
#include "yoke/comm/modules/patience.h"
#include "yoke/comm/modules/traffic.h"
#include "yoke/comm/mpi/mpi_transfers.h"
#include "yoke/comm/sum_of_shares.h"
#include "yoke/kernels/reduce.h"

namespace yoke::comm::mpi {
namespace {

using plan::Collective;

constexpr int64_t kPiece = int64_t{1} << 30;  // elements; MPI counts are int

int counted(int64_t count, const Operation& operation) {
  if (count <= std::numeric_limits<int>::max()) return static_cast<int>(count);
  throw ConfigError("{}: {} elements in one part exceed MPI's limit. Split the operation.",
                    operation.descriptor.text(), count);
}

class MpiBackend final : public Backend {
 public:
  MpiBackend(Library& library, MPI_Comm collectives, MPI_Comm messages,
             std::shared_ptr<cluster::Failure> failure);
  ~MpiBackend() override;

  const std::string& name() const override { return name_; }
  void run(const Operation& operation, Deadline deadline) override;
  bool advance(Transfer& transfer) override { return transfers_.advance(transfer); }
  void wait_for(std::span<Transfer* const> transfers, Deadline deadline) override {
    transfers_.wait_for(transfers, deadline);
  }
  void wake() override { transfers_.wake(); }
  std::unique_ptr<Backend> split(std::span<const int> members, uint64_t group, Deadline deadline) override;
  Memory allocate(size_t bytes) override;
  Counters counters() const override;

 private:
  void agree(const Operation& operation, Deadline deadline);
  [[noreturn]] void throw_mismatch(const Operation& operation, Deadline deadline);
  void carry_out(const Operation& operation, Deadline deadline);
  void reduce(const Operation& operation, Deadline deadline);
  void reduce_scatter(const Operation& operation, Deadline deadline);
  void all_gather(const Operation& operation, Deadline deadline);
  void all_to_all(const Operation& operation, Deadline deadline);
  void broadcast(const Operation& operation, Deadline deadline);
  void gather(const Operation& operation, Deadline deadline);
  void scatter(const Operation& operation, Deadline deadline);
  void meet(std::span<const int> members, int tag, Deadline deadline);
  void finish(MPI_Request request, const Operation& operation, Deadline deadline);
  void refuse_after_failure(const Operation& operation) const;

  const std::string name_ = "mpi";
  Library& library_;
  MPI_Comm comm_;      // for collectives
  MPI_Comm messages_;  // for sends and receives
  int rank_ = 0;
  int size_ = 1;
  std::shared_ptr<cluster::Failure> failure_;
  Transfers transfers_;
  std::vector<std::byte> shares_;
  mutable std::mutex counters_mutex_;
  Counters counters_;
};

int rank_in(MPI_Comm comm) {
  int rank = 0;
  check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  return rank;
}

int size_of_group(MPI_Comm comm) {
  int size = 0;
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  return size;
}

MpiBackend::MpiBackend(Library& library, MPI_Comm collectives, MPI_Comm messages,
                       std::shared_ptr<cluster::Failure> failure)
    : library_(library),
      comm_(collectives),
      messages_(messages),
      rank_(rank_in(collectives)),
      size_(size_of_group(collectives)),
      failure_(std::move(failure)),
      transfers_(library, messages, rank_, failure_) {}

MpiBackend::~MpiBackend() {
  if (!library_.usable()) return;
  MPI_Comm_free(&messages_);
  MPI_Comm_free(&comm_);
}

void MpiBackend::refuse_after_failure(const Operation& operation) const {
  if (failure_ && failure_->set()) failure_->check(operation.descriptor.text().c_str());
  if (!library_.usable())
    throw CommError("{}: MPI is not usable after an earlier failure", operation.descriptor.text());
}

void MpiBackend::run(const Operation& operation, Deadline deadline) {
  if (operation.algorithm)
    throw ConfigError("{}: backend mpi lets MPI choose the algorithm. Remove '{}'.",
                      operation.descriptor.text(), to_string(*operation.algorithm));
  refuse_after_failure(operation);
  agree(operation, deadline);
  if (overflows_as_sum(operation))
    carry_out(sum_of_shares(operation, size_, shares_), deadline);
  else
    carry_out(operation, deadline);
  std::lock_guard lock(counters_mutex_);
  counters_ += payload_of(operation, rank_, size_);
}

void MpiBackend::carry_out(const Operation& operation, Deadline deadline) {
  switch (operation.op) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      return reduce(operation, deadline);
    case Collective::kReduceScatter:
      return reduce_scatter(operation, deadline);
    case Collective::kAllGather:
      return all_gather(operation, deadline);
    case Collective::kAllToAll:
      return all_to_all(operation, deadline);
    case Collective::kBroadcast:
      return broadcast(operation, deadline);
    case Collective::kGather:
      return gather(operation, deadline);
    case Collective::kScatter:
      return scatter(operation, deadline);
    case Collective::kBarrier:
      return;  // agree() synchronised the ranks
  }
}

// Largest and smallest fingerprint in one small all-reduce (the minimum as the maximum of the complement);
// descriptors are exchanged only if they differ.
void MpiBackend::agree(const Operation& operation, Deadline deadline) {
  uint64_t bounds[2] = {operation.fingerprint, ~operation.fingerprint};
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallreduce(MPI_IN_PLACE, bounds, 2, MPI_UINT64_T, MPI_MAX, comm_, &request), "MPI_Iallreduce");
  finish(request, operation, deadline);
  if (bounds[0] != ~bounds[1]) throw_mismatch(operation, deadline);
}

void MpiBackend::throw_mismatch(const Operation& operation, Deadline deadline) {
  std::vector<Descriptor> all(static_cast<size_t>(size_));
  constexpr int kBytes = sizeof(Descriptor);
  MPI_Request request = MPI_REQUEST_NULL;
  check(
      MPI_Iallgather(&operation.descriptor, kBytes, MPI_BYTE, all.data(), kBytes, MPI_BYTE, comm_, &request),
      "MPI_Iallgather");
  finish(request, operation, deadline);
  for (int rank = 1; rank < size_; rank++) {
    const Descriptor& other = all[static_cast<size_t>(rank)];
    if (!(other == all[0])) throw MismatchError("{}", describe_mismatch(rank, other, 0, all[0]));
  }
  throw MismatchError("{}: fingerprints of equal operations differ. Are all ranks the same build?",
                      operation.descriptor.text());
}

void MpiBackend::finish(MPI_Request request, const Operation& operation, Deadline deadline) {
  Patience patience(operation.output.bytes());
  for (;;) {
    int done = 0;
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done) return;
    bool failed = failure_ && failure_->set();
    if (failed || deadline.passed()) {
      library_.give_up();
      std::string doing = operation.descriptor.text();
      if (failed) failure_->check(doing.c_str());
      throw CommError(
          "{}: not complete after {:.1f} s (rank {} of {}, backend mpi). A rank has not called this "
          "operation or has stopped: check it, or raise the timeout.",
          doing, deadline.elapsed(), rank_, size_);
    }
    patience.rest();
  }
}

void MpiBackend::reduce(const Operation& operation, Deadline deadline) {
  MPI_Datatype type = datatype_of(operation.output.type);
  MPI_Op op = op_of(operation.output.type, operation.reduce);
  auto* data = static_cast<std::byte*>(operation.output.data);
  bool all = operation.op == Collective::kAllReduce, here = all || rank_ == operation.root;
  for (int64_t at = 0; at < operation.output.count; at += kPiece) {
    auto count = static_cast<int>(std::min(kPiece, operation.output.count - at));
    std::byte* piece = data + static_cast<size_t>(at) * size_of(operation.output.type);
    MPI_Request request = MPI_REQUEST_NULL;
    if (all)
      check(MPI_Iallreduce(MPI_IN_PLACE, piece, count, type, op, comm_, &request), "MPI_Iallreduce");
    else
      check(MPI_Ireduce(here ? MPI_IN_PLACE : piece, here ? piece : nullptr, count, type, op, operation.root,
                        comm_, &request),
            "MPI_Ireduce");
    finish(request, operation, deadline);
  }
  if (operation.reduce == ReduceOp::kMean && here)
    kernels::divide(data, static_cast<size_t>(operation.output.count), operation.output.type, size_);
}

// MPI forbids overlapping input and output; our output may be part of the input.
void MpiBackend::reduce_scatter(const Operation& operation, Deadline deadline) {
  const Buffer& out = operation.output;
  if (out.count == 0) return;
  const auto* begin = static_cast<const std::byte*>(operation.input.data);
  auto* result = static_cast<std::byte*>(out.data);
  bool inside = result >= begin && result < begin + operation.input.bytes();
  std::vector<std::byte> apart(inside ? out.bytes() : 0);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ireduce_scatter_block(begin, inside ? apart.data() : result, counted(out.count, operation),
                                  datatype_of(out.type), op_of(out.type, operation.reduce), comm_, &request),
        "MPI_Ireduce_scatter_block");
  finish(request, operation, deadline);
  if (inside) std::memcpy(result, apart.data(), apart.size());
  if (operation.reduce == ReduceOp::kMean)
    kernels::divide(result, static_cast<size_t>(out.count), out.type, size_);
}

void MpiBackend::all_gather(const Operation& operation, Deadline deadline) {
  MPI_Datatype type = datatype_of(operation.output.type);
  std::vector<int> counts(static_cast<size_t>(size_)), begins(counts.size());
  int64_t begin = 0;
  for (size_t r = 0; r < counts.size(); r++) {
    counts[r] = counted(operation.parts.empty() ? operation.input.count : operation.parts[r], operation);
    begins[r] = operation.parts.empty() ? 0 : counted(begin, operation);
    begin += counts[r];
  }
  int64_t here = operation.parts.empty() ? operation.input.count * rank_ : begins[static_cast<size_t>(rank_)];
  const void* place = static_cast<std::byte*>(operation.output.data) +
                      static_cast<size_t>(here) * size_of(operation.output.type);
  const void* input = operation.input.data == place ? MPI_IN_PLACE : operation.input.data;
  int count = counts[static_cast<size_t>(rank_)];
  MPI_Request request = MPI_REQUEST_NULL;
  if (operation.parts.empty())
    check(MPI_Iallgather(input, count, type, operation.output.data, count, type, comm_, &request),
          "MPI_Iallgather");
  else
    check(MPI_Iallgatherv(input, count, type, operation.output.data, counts.data(), begins.data(), type,
                          comm_, &request),
          "MPI_Iallgatherv");
  finish(request, operation, deadline);
}

void MpiBackend::all_to_all(const Operation& operation, Deadline deadline) {
  MPI_Datatype type = datatype_of(operation.output.type);
  int part = counted(operation.output.count / size_, operation);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ialltoall(operation.input.data, part, type, operation.output.data, part, type, comm_, &request),
        "MPI_Ialltoall");
  finish(request, operation, deadline);
}

void MpiBackend::broadcast(const Operation& operation, Deadline deadline) {
  const Buffer& data = operation.output;
  for (int64_t at = 0; at < data.count; at += kPiece) {
    auto count = static_cast<int>(std::min(kPiece, data.count - at));
    void* piece = static_cast<std::byte*>(data.data) + static_cast<size_t>(at) * size_of(data.type);
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Ibcast(piece, count, datatype_of(data.type), operation.root, comm_, &request), "MPI_Ibcast");
    finish(request, operation, deadline);
  }
}

// The root's own part may already be in place.
bool own_part_in_place(const void* part, const void* whole, size_t bytes, int rank) {
  return part == static_cast<const std::byte*>(whole) + bytes * static_cast<size_t>(rank);
}

void MpiBackend::gather(const Operation& operation, Deadline deadline) {
  const ConstBuffer& input = operation.input;
  MPI_Datatype type = datatype_of(input.type);
  int count = counted(input.count, operation);
  bool in_place =
      rank_ == operation.root && own_part_in_place(input.data, operation.output.data, input.bytes(), rank_);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Igather(in_place ? MPI_IN_PLACE : input.data, count, type, operation.output.data, count, type,
                    operation.root, comm_, &request),
        "MPI_Igather");
  finish(request, operation, deadline);
}

void MpiBackend::scatter(const Operation& operation, Deadline deadline) {
  const Buffer& output = operation.output;
  MPI_Datatype type = datatype_of(output.type);
  int count = counted(output.count, operation);
  bool in_place =
      rank_ == operation.root && own_part_in_place(output.data, operation.input.data, output.bytes(), rank_);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iscatter(operation.input.data, count, type, in_place ? MPI_IN_PLACE : output.data, count, type,
                     operation.root, comm_, &request),
        "MPI_Iscatter");
  finish(request, operation, deadline);
}

// Barrier over `members` in log2 rounds of empty messages, polled: creating an MPI group blocks without a
// deadline, so all members must have arrived first.
void MpiBackend::meet(std::span<const int> members, int tag, Deadline deadline) {
  auto size = static_cast<int>(members.size());
  auto here = static_cast<int>(std::ranges::find(members, rank_) - members.begin());
  YOKE_CHECK(here < size, "rank {} called split() for a group that it is not a member of", rank_);
  Operation forming;  // for errors
  forming.op = Collective::kBarrier;
  forming.descriptor.op = static_cast<uint8_t>(forming.op);
  forming.descriptor.set_name("split");
  refuse_after_failure(forming);
  for (int distance = 1; distance < size; distance *= 2) {
    int to = members[static_cast<size_t>((here + distance) % size)];
    int from = members[static_cast<size_t>((here + size - distance) % size)];
    MPI_Request in = MPI_REQUEST_NULL, out = MPI_REQUEST_NULL;
    check(MPI_Irecv(nullptr, 0, MPI_BYTE, from, tag, comm_, &in), "MPI_Irecv");
    check(MPI_Isend(nullptr, 0, MPI_BYTE, to, tag, comm_, &out), "MPI_Isend");
    finish(in, forming, deadline);
    finish(out, forming, deadline);
  }
}

std::unique_ptr<Backend> MpiBackend::split(std::span<const int> members, uint64_t group, Deadline deadline) {
  auto tag = static_cast<int>(group % 32768);  // MPI's smallest upper bound of tags
  meet(members, tag, deadline);
  MPI_Group everybody = MPI_GROUP_NULL, chosen = MPI_GROUP_NULL;
  check(MPI_Comm_group(comm_, &everybody), "MPI_Comm_group");
  check(MPI_Group_incl(everybody, static_cast<int>(members.size()), members.data(), &chosen),
        "MPI_Group_incl");
  MPI_Comm collectives = MPI_COMM_NULL, messages = MPI_COMM_NULL;
  check(MPI_Comm_create_group(comm_, chosen, tag, &collectives), "MPI_Comm_create_group");
  check(MPI_Comm_dup(collectives, &messages), "MPI_Comm_dup");
  MPI_Group_free(&chosen);
  MPI_Group_free(&everybody);
  return std::make_unique<MpiBackend>(library_, collectives, messages, failure_);
}

// MPI registers memory on first use; ordinary pages are as good as any.
Memory MpiBackend::allocate(size_t bytes) {
  constexpr size_t kPage = 4096;
  void* data = std::aligned_alloc(kPage, (std::max(bytes, size_t{1}) + kPage - 1) / kPage * kPage);
  if (data == nullptr) throw std::bad_alloc();
  return {std::shared_ptr<void>(data, std::free), bytes};
}

Counters MpiBackend::counters() const {
  Counters sum = transfers_.counters();
  std::lock_guard lock(counters_mutex_);
  return sum += counters_;
}

std::unique_ptr<Backend> make(const MpiSetup& setup) {
  Library& library = Library::use(setup);
  int rank = rank_in(MPI_COMM_WORLD), size = size_of_group(MPI_COMM_WORLD);
  if (rank != setup.rank || size != setup.size)
    throw ConfigError(
        "backend mpi: MPI says rank {} of {}, this job has rank {} of {}. Start the program with mpirun (or "
        "srun) of the "
        "MPI that yoke was built with, or choose another backend.",
        rank, size, setup.rank, setup.size);
  MPI_Comm collectives = MPI_COMM_NULL, messages = MPI_COMM_NULL;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &collectives), "MPI_Comm_dup");
  check(MPI_Comm_dup(MPI_COMM_WORLD, &messages), "MPI_Comm_dup");
  return std::make_unique<MpiBackend>(library, collectives, messages, setup.failure);
}

}  // namespace
}  // namespace yoke::comm::mpi

extern "C" __attribute__((visibility("default"))) const char* yoke_module_stamp() {
  static const std::string stamp = yoke::comm::module_stamp(sizeof(yoke::comm::MpiSetup));
  return stamp.c_str();
}

// Allowed before MPI_Init.
extern "C" __attribute__((visibility("default"))) const char* yoke_module_version() {
  static char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return "unknown version";
  return text;
}

extern "C" __attribute__((visibility("default"))) yoke::comm::Backend* yoke_mpi_backend(
    const yoke::comm::MpiSetup* setup) {
  return yoke::comm::mpi::make(*setup).release();
}
