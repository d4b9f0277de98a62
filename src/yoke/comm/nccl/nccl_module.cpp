// libyoke_nccl.so: the backend on NCCL's C interface.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>

#include "yoke/comm/modules/module.h"
#include "yoke/comm/modules/traffic.h"
#include "yoke/comm/nccl/nccl_channel.h"
#include "yoke/comm/nccl/nccl_sharing.h"

namespace yoke::comm::nccl {
namespace {

using plan::Collective;

constexpr uint64_t kControlGroup = 0x636f6e74726f6c;  // of the world; "control"

// Whether kernels can access this memory. False for nullptr and all host memory, pinned memory included.
bool on_device(const void* data, size_t bytes) {
  if (bytes == 0) return false;
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, data), "cudaPointerGetAttributes");
  return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
}

bool is_on_device(const Operation& operation) {
  return on_device(operation.output.data, operation.output.bytes()) ||
         on_device(operation.input.data, operation.input.bytes());
}

ncclRedOp_t op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMean:
      return ncclAvg;
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kProd:
      return ncclProd;
    case ReduceOp::kSum:
      break;
  }
  return ncclSum;
}

ncclDataType_t type_of(DataType type, const Operation& operation) {
  switch (type) {
    case DataType::kFloat32:
      return ncclFloat32;
    case DataType::kFloat64:
      return ncclFloat64;
    case DataType::kFloat16:
      return ncclFloat16;
    case DataType::kBFloat16:
      return ncclBfloat16;
    case DataType::kInt8:
      return ncclInt8;
    case DataType::kUint8:
      return ncclUint8;
    case DataType::kInt32:
      return ncclInt32;
    case DataType::kInt64:
      return ncclInt64;
    case DataType::kInt16:
      break;
  }
  throw ConfigError("{}: NCCL cannot reduce 16-bit integers. Use int32.", operation.descriptor.text());
}

// One collective, issued to the stream of a group.
struct Launch {
  Group& group;
  const Operation& operation;
  std::string doing;
  Deadline deadline;

  void call(ncclResult_t result, const char* what) { group.call(result, what, doing, deadline); }
  const std::byte* in(size_t at) const { return static_cast<const std::byte*>(operation.input.data) + at; }
  std::byte* out(size_t at) const { return static_cast<std::byte*>(operation.output.data) + at; }

  void carry_out();
  void reduction();
  void all_gather();
  void unequal_all_gather();
  void grouped();
};

void Launch::carry_out() {
  const Buffer& output = operation.output;
  switch (operation.op) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kReduceScatter:
      return reduction();
    case Collective::kAllGather:
      return operation.parts.empty() ? all_gather() : unequal_all_gather();
    case Collective::kBroadcast:
      return call(ncclBroadcast(output.data, output.data, output.bytes(), ncclUint8, operation.root,
                                group.comm(), group.stream()),
                  "ncclBroadcast");
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kScatter:
      return grouped();
    case Collective::kBarrier:
      return;  // the comparison synchronised the ranks
  }
}

void Launch::reduction() {
  const Buffer& data = operation.output;
  auto count = static_cast<size_t>(data.count);
  ncclDataType_t type = type_of(data.type, operation);
  ncclRedOp_t op = op_of(operation.reduce);
  if (operation.op == Collective::kAllReduce)
    call(ncclAllReduce(data.data, data.data, count, type, op, group.comm(), group.stream()), "ncclAllReduce");
  else if (operation.op == Collective::kReduce)
    call(ncclReduce(data.data, data.data, count, type, op, operation.root, group.comm(), group.stream()),
         "ncclReduce");
  else
    call(ncclReduceScatter(operation.input.data, data.data, count, type, op, group.comm(), group.stream()),
         "ncclReduceScatter");
}

void Launch::all_gather() {
  call(ncclAllGather(operation.input.data, operation.output.data, operation.input.bytes(), ncclUint8,
                     group.comm(), group.stream()),
       "ncclAllGather");
}

void Launch::unequal_all_gather() {
  size_t at = 0;
  call(ncclGroupStart(), "ncclGroupStart");
  for (int r = 0; r < group.size(); r++) {
    size_t bytes =
        static_cast<size_t>(operation.parts[static_cast<size_t>(r)]) * size_of(operation.output.type);
    const void* from = r == group.rank() ? operation.input.data : out(at);
    if (bytes > 0) ncclBroadcast(from, out(at), bytes, ncclUint8, r, group.comm(), group.stream());
    at += bytes;
  }
  call(ncclGroupEnd(), "ncclBroadcast");
}

// Collectives that are pairwise messages; NCCL starts those of a group call together.
void Launch::grouped() {
  int rank = group.rank(), root = operation.root;
  bool all = operation.op == Collective::kAllToAll, outwards = operation.op == Collective::kScatter;
  size_t part = operation.op == Collective::kGather
                    ? operation.input.bytes()
                    : operation.output.bytes() / (all ? static_cast<size_t>(group.size()) : 1);
  call(ncclGroupStart(), "ncclGroupStart");
  for (int peer = 0; peer < group.size() && part > 0; peer++) {
    size_t at = part * static_cast<size_t>(peer);
    bool sends = all || (outwards ? rank == root : peer == root);
    bool receives = all || (outwards ? peer == root : rank == root);
    bool whole_in = all || outwards, whole_out = all || !outwards;
    if (sends) ncclSend(in(whole_in ? at : 0), part, ncclUint8, peer, group.comm(), group.stream());
    if (receives) ncclRecv(out(whole_out ? at : 0), part, ncclUint8, peer, group.comm(), group.stream());
  }
  call(ncclGroupEnd(), "ncclSend and ncclRecv");
}

class NcclBackend final : public Backend {
 public:
  // `control`: unique name of the group.
  NcclBackend(const NcclSetup& setup, std::string key, int rank, int size, uint64_t control,
              Deadline deadline);

  const std::string& name() const override { return name_; }
  void run(const Operation& operation, Deadline deadline) override;
  bool advance(Transfer& transfer) override;
  void wait_for(std::span<Transfer* const> transfers, Deadline deadline) override;
  void wake() override;
  std::unique_ptr<Backend> split(std::span<const int> members, uint64_t group, Deadline deadline) override;
  Memory allocate(size_t bytes) override;
  Counters counters() const override;

 private:
  void agree(const Operation& operation, Deadline deadline);
  void count(const Counters& more);

  const std::string name_ = "nccl";
  NcclSetup setup_;
  std::string key_;
  std::shared_ptr<Group> group_;
  std::unique_ptr<Backend> control_;  // over host memory: announcements of transfers
  std::map<std::pair<int, bool>, std::unique_ptr<Channel>> channels_;  // by peer and direction (true: send)

  mutable std::mutex mutex_;
  std::condition_variable woken_;
  bool wake_ = false;
  int sleep_us_ = 0;
  Counters counters_;
};

NcclBackend::NcclBackend(const NcclSetup& setup, std::string key, int rank, int size, uint64_t control,
                         Deadline deadline)
    : setup_(setup),
      key_(std::move(key)),
      group_(std::make_shared<Group>(setup, key_, rank, size, deadline)) {
  std::vector<int> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  control_ = setup_.host->split(all, control, deadline);
}

void NcclBackend::run(const Operation& operation, Deadline deadline) {
  if (!is_on_device(operation)) return setup_.host->run(operation, deadline);
  if (operation.algorithm)
    throw ConfigError("{}: backend nccl lets NCCL choose the algorithm. Remove '{}'.",
                      operation.descriptor.text(), to_string(*operation.algorithm));
  Launch launch{*group_, operation, operation.descriptor.text(), deadline};
  group_->enter(launch.doing);
  agree(operation, deadline);
  {
    std::lock_guard lock(group_->gate());
    group_->follow_compute();
    launch.carry_out();
  }
  group_->finish(launch.doing, operation.output.bytes(), deadline);
  count(payload_of(operation, group_->rank(), group_->size()));
}

// NCCL hangs or corrupts data if ranks call different operations, so descriptors are compared first, by a
// barrier over the host backend that carries the operation's descriptor.
void NcclBackend::agree(const Operation& operation, Deadline deadline) {
  Operation barrier;
  barrier.op = Collective::kBarrier;
  barrier.descriptor = operation.descriptor;
  barrier.descriptor.set_name("device: " + std::string(operation.descriptor.name));
  barrier.fingerprint = barrier.descriptor.fingerprint();
  setup_.host->run(barrier, deadline);
}

bool NcclBackend::advance(Transfer& transfer) {
  if (!on_device(transfer.data, transfer.bytes)) return setup_.host->advance(transfer);
  std::unique_ptr<Channel>& channel = channels_[{transfer.peer, transfer.is_send}];
  if (!channel) {
    int from = transfer.is_send ? group_->rank() : transfer.peer,
        to = transfer.is_send ? transfer.peer : group_->rank();
    channel = std::make_unique<Channel>(setup_, *control_, fmt::format("{}/{}to{}", key_, from, to),
                                        transfer.peer, transfer.is_send);
  }
  if (!channel->advance(transfer, group_->rank())) return false;
  transfer.offset = transfer.bytes;
  auto bytes = static_cast<int64_t>(transfer.bytes);
  count(transfer.is_send ? Counters{1, bytes, 0, 1} : Counters{1, 0, bytes, 0});
  return true;
}

// The device sends no notification when it is done: sleep, longer each time nothing has completed.
void NcclBackend::wait_for(std::span<Transfer* const>, Deadline deadline) {
  std::unique_lock lock(mutex_);
  sleep_us_ = std::clamp(sleep_us_ * 5 / 4, 10, 1000);
  auto sleep = std::min(static_cast<double>(sleep_us_) * 1e-6, deadline.left());
  woken_.wait_for(lock, std::chrono::duration<double>(sleep), [&] { return wake_; });
  wake_ = false;
}

void NcclBackend::wake() {
  {
    std::lock_guard lock(mutex_);
    wake_ = true;
  }
  woken_.notify_all();
}

// Not ncclCommSplit, which is collective over the whole group; only the members get here.
std::unique_ptr<Backend> NcclBackend::split(std::span<const int> members, uint64_t group, Deadline deadline) {
  auto place = static_cast<int>(std::ranges::find(members, group_->rank()) - members.begin());
  auto size = static_cast<int>(members.size());
  YOKE_CHECK(place < size, "rank {} called split() for a group that it is not a member of", group_->rank());
  NcclSetup setup = setup_;
  setup.host = setup_.host->split(members, group, deadline);
  return std::make_unique<NcclBackend>(setup, fmt::format("{}/group{}", key_, group), place, size, ~group,
                                       deadline);
}

Memory NcclBackend::allocate(size_t bytes) {
  group_->enter("allocate");
  auto good = [&](ncclResult_t result, const char* call) {
    if (result != ncclSuccess)
      throw CommError("{} of {} bytes failed on device {}: {}. Is its memory full?", call, bytes,
                      setup_.device, ncclGetErrorString(result));
  };
  size_t taken = std::max(bytes, size_t{1});
  void* data = nullptr;
  good(ncclMemAlloc(&data, taken), "ncclMemAlloc");
  std::unique_ptr<void, ncclResult_t (*)(void*)> owned(data, ncclMemFree);
  void* handle = nullptr;
  std::lock_guard lock(group_->gate());
  good(ncclCommRegister(group_->comm(), data, taken, &handle), "ncclCommRegister");
  auto free = [handle, device = setup_.device, group = std::weak_ptr<Group>(group_)](void* memory) {
    cudaSetDevice(device);
    cudaDeviceSynchronize();  // unlike cudaFree, ncclMemFree unmaps memory that kernels still use
    if (auto alive = group.lock()) {
      std::lock_guard gate(alive->gate());
      if (alive->comm() != nullptr) ncclCommDeregister(alive->comm(), handle);
    }
    ncclMemFree(memory);
  };
  return {std::shared_ptr<void>(owned.release(), free), bytes};
}

void NcclBackend::count(const Counters& more) {
  std::lock_guard lock(mutex_);
  counters_ += more;
  sleep_us_ = 0;
}

Counters NcclBackend::counters() const {
  std::lock_guard lock(mutex_);
  Counters all = counters_;
  all += setup_.host->counters();
  return all;
}

std::unique_ptr<Backend> make(NcclSetup setup) {
  static std::atomic<int> made{0};  // the same on all ranks, because creating a backend is collective
  int devices = 0;
  cudaError_t error = cudaGetDeviceCount(&devices);
  if (setup.device == -1 && devices > 0) setup.device = setup.local_rank % devices;
  if (error != cudaSuccess || setup.device < 0 || setup.device >= devices)
    throw ConfigError(
        "backend nccl: rank {} requests device {}, but CUDA sees {} ({}). Choose another backend or device.",
        setup.rank, setup.device, devices, cudaGetErrorString(error));
  std::string key = fmt::format("nccl{}", made++);
  Deadline deadline = Deadline::after(setup.timeout);
  allow_sharing(setup, key, deadline);
  return std::make_unique<NcclBackend>(setup, key, setup.rank, setup.size, kControlGroup, deadline);
}

}  // namespace
}  // namespace yoke::comm::nccl

extern "C" __attribute__((visibility("default"))) const char* yoke_module_stamp() {
  static const std::string stamp = yoke::comm::module_stamp(sizeof(yoke::comm::NcclSetup));
  return stamp.c_str();
}

extern "C" __attribute__((visibility("default"))) const char* yoke_module_version() {
  static std::string text;
  int number = 0;
  if (ncclGetVersion(&number) != ncclSuccess) return "unknown version";
  text = fmt::format("NCCL {}.{}.{}", number / 10000, number / 100 % 100, number % 100);
  return text.c_str();
}

extern "C" __attribute__((visibility("default"))) yoke::comm::Backend* yoke_nccl_backend(
    const yoke::comm::NcclSetup* setup) {
  return yoke::comm::nccl::make(*setup).release();
}

extern "C" __attribute__((visibility("default"))) void yoke_nccl_copy(void* to, const void* from,
                                                                      size_t bytes) {
  yoke::comm::nccl::check(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "cudaMemcpy");
}
