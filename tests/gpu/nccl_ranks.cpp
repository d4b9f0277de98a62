// Two ranks over NCCL on one GPU: `yoke_nccl_test [RANKS [DEVICES]]`. Forks the ranks itself; exit code 0
// when every check passed. Not run by ctest: it needs a GPU.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "../processes/backend_suite.h"
#include "yoke/comm/nccl/nccl.h"
#include "yoke/comm/shared/shm.h"

namespace {

using namespace yoke;

// Values that the processes leave for each other, in memory they share.
struct Board {
  struct Entry {
    std::atomic<int> ready;
    char key[120];
    char value[256];
    size_t bytes;
  };
  std::atomic<int> used;
  std::array<Entry, 256> entries;

  void put(const std::string& key, const std::string& value) {
    Entry& entry = entries.at(static_cast<size_t>(used.fetch_add(1)));
    std::strncpy(entry.key, key.c_str(), sizeof(entry.key) - 1);
    std::memcpy(entry.value, value.data(), value.size());
    entry.bytes = value.size();
    entry.ready.store(1);
  }
  std::string get(const std::string& key, Deadline deadline) {
    while (!deadline.passed()) {
      for (Entry& entry : entries)
        if (entry.ready.load() != 0 && key == entry.key) return {entry.value, entry.bytes};
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    throw CommError("nobody has put {}", key);
  }
};

class DeviceArena : public test::Arena {
 public:
  explicit DeviceArena(comm::Backend& backend) : backend_(backend) {}
  // One registered block, handed out from the front: every check starts over.
  std::shared_ptr<void> make(size_t bytes) override {
    size_t begin = used_;
    used_ += (bytes + 255) / 256 * 256;
    if (!block_.data || used_ > block_.bytes) {
      block_ = backend_.allocate(std::max<size_t>(size_t{64} << 20, bytes));
      begin = 0;
      used_ = (bytes + 255) / 256 * 256;
    }
    return {block_.data, static_cast<std::byte*>(block_.data.get()) + begin};
  }
  void write(void* to, const void* from, size_t bytes) override { comm::nccl_copy(to, from, bytes); }
  void read(void* to, const void* from, size_t bytes) override { comm::nccl_copy(to, from, bytes); }

 private:
  comm::Backend& backend_;
  comm::Memory block_;
  size_t used_ = 0;
};

struct Rank {
  comm::NcclSetup setup;
  std::unique_ptr<comm::Backend> backend;
};

void expect(bool good, const std::string& what) {
  if (!good) throw std::runtime_error(what);
}

// Tags out of order: both messages are under way, and the second is wanted first, by itself.
void tags(Rank& rank) {
  if (rank.setup.rank > 1) return;
  bool is_send = rank.setup.rank == 0;
  comm::Memory memory = rank.backend->allocate(2 * 4096);
  std::vector<float> values(2048);
  for (size_t i = 0; i < values.size(); i++) values[i] = is_send ? static_cast<float>(i) : -1;
  comm::nccl_copy(memory.data.get(), values.data(), 8192);
  comm::Transfer both[2];
  for (int i = 0; i < 2; i++) {
    comm::Transfer& t = both[i];
    t.is_send = is_send;
    t.peer = 1 - rank.setup.rank;
    t.tag = i;
    t.data = static_cast<std::byte*>(memory.data.get()) + 4096 * i;
    t.bytes = 4096;
    t.descriptor.op = is_send ? comm::kSendOp : comm::kReceiveOp;
    t.descriptor.root = i;
    t.descriptor.count = 1024;
    t.fingerprint = t.descriptor.fingerprint();
  }
  Deadline deadline = Deadline::after(60);
  auto finish = [&](std::vector<comm::Transfer*> open) {
    while (!open.empty()) {
      std::erase_if(open, [&](comm::Transfer* one) { return rank.backend->advance(*one); });
      expect(!deadline.passed(), "a tagged transfer does not end");
      if (!open.empty()) rank.backend->wait_for(open, deadline);
    }
  };
  if (is_send) {
    finish({&both[0], &both[1]});
  } else {
    finish({&both[1]});
    finish({&both[0]});
  }
  comm::nccl_copy(values.data(), memory.data.get(), 8192);
  for (size_t i = 0; i < values.size(); i++) expect(values[i] == static_cast<float>(i), "tags were mixed up");
}

void split(Rank& rank, DeviceArena& arena) {
  std::vector<int> members;
  for (int r = rank.setup.size - 1; r >= 0; r--) members.push_back(r);
  auto group = rank.backend->split(members, 77, Deadline::after(60));
  test::Suite suite(*group, rank.setup.size - 1 - rank.setup.rank, rank.setup.size, arena,
                    {DataType::kFloat32});
  suite.every_operation();
}

void speed(Rank& rank, test::Suite& suite) {
  for (int64_t count : {int64_t{1}, int64_t{1} << 18, int64_t{1} << 24}) {
    comm::Memory memory = rank.backend->allocate(static_cast<size_t>(count) * 4);
    Stopwatch watch;
    int turns = 20;
    for (int turn = 0; turn <= turns; turn++) {
      if (turn == 1) watch.lap();  // the first connects
      auto o = suite.operation(plan::Collective::kAllReduce, DataType::kFloat32, count);
      o.output = comm::Buffer(memory.data.get(), count, DataType::kFloat32);
      o.input = o.output;
      suite.run(o);
    }
    if (rank.setup.rank == 0)
      fmt::print("all_reduce {} bytes: {:.1f} us\n", 4 * count, watch.lap() / turns * 1e6);
  }
}

// In a group of its own, because it is gone then.
void mismatch(Rank& rank, DeviceArena& arena) {
  std::vector<int> all;
  for (int r = 0; r < rank.setup.size; r++) all.push_back(r);
  auto group = rank.backend->split(all, 78, Deadline::after(60));
  test::Suite suite(*group, rank.setup.rank, rank.setup.size, arena, {DataType::kFloat32});
  bool odd = rank.setup.rank == rank.setup.size - 1;
  comm::Memory memory = rank.backend->allocate(1024);
  auto o = suite.operation(odd ? plan::Collective::kBroadcast : plan::Collective::kAllReduce,
                           DataType::kFloat32, 8, odd ? "weights" : "bucket 3");
  o.output = comm::Buffer(memory.data.get(), 8, DataType::kFloat32);
  o.input = o.output;
  std::string told = "nothing";
  try {
    suite.run(o);
  } catch (const comm::MismatchError& error) {
    told = error.what();
  }
  expect(told.find("weights") != std::string::npos && told.find("bucket 3") != std::string::npos,
         "mismatch says: " + told);
}

// The last rank does not come, and is named. Last, because the group is gone then.
void deadline(Rank& rank, test::Suite& suite) {
  if (rank.setup.rank == rank.setup.size - 1) {
    rank.setup.get("deadline passed", Deadline::after(30));  // stays, so that nobody sees it leave
    return;
  }
  comm::Memory memory = rank.backend->allocate(1024);
  auto o = suite.operation(plan::Collective::kAllReduce, DataType::kFloat32, 8, "lonely");
  o.output = comm::Buffer(memory.data.get(), 8, DataType::kFloat32);
  o.input = o.output;
  std::string told = "nothing";
  Stopwatch watch;
  try {
    suite.run(o, 1.0);
  } catch (const CommError& error) {
    told = error.what();
  }
  rank.setup.put("deadline passed", "", Deadline::after(30));
  std::string missing = fmt::format("waited 1 s for rank {}", rank.setup.size - 1);
  expect(told.find(missing) != std::string::npos, "deadline says: " + told);
  fmt::print("deadline of 1 s: given up after {:.2f} s: {}\n", watch.seconds(), told);
}

void run_rank(int number, int size, int devices, Board& board) {
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  ::setenv("NCCL_IB_DISABLE", "1", 1);
  Rank rank;
  rank.setup.rank = number;
  rank.setup.size = size;
  rank.setup.device = number % devices;
  rank.setup.failure = std::make_shared<cluster::Failure>();
  rank.setup.timeout = 60;
  rank.setup.put = [&](const std::string& key, const std::string& value, Deadline) { board.put(key, value); };
  rank.setup.get = [&](const std::string& key, Deadline until) { return board.get(key, until); };
  comm::ShmSetup host;
  host.rank = number;
  host.size = size;
  host.put = rank.setup.put;
  host.get = rank.setup.get;
  host.failure = rank.setup.failure;
  rank.setup.host = comm::make_shm_backend(host);
  rank.backend = comm::make_nccl_backend(rank.setup);
  DeviceArena arena(*rank.backend);
  test::Suite suite(*rank.backend, number, size, arena,
                    {DataType::kFloat32, DataType::kFloat64, DataType::kFloat16, DataType::kBFloat16,
                     DataType::kInt8, DataType::kUint8, DataType::kInt32, DataType::kInt64});
  suite.every_operation();
  test::Arena in_host_memory;
  test::Suite from_host(*rank.backend, number, size, in_host_memory, {DataType::kFloat32, DataType::kInt64});
  from_host.every_operation();
  tags(rank);
  split(rank, arena);
  speed(rank, suite);
  mismatch(rank, arena);
  deadline(rank, suite);
  fmt::print("rank {}: ok, {} checks\n", number, suite.checks() + from_host.checks());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  int size = argc > 1 ? std::atoi(argv[1]) : 2, devices = argc > 2 ? std::atoi(argv[2]) : 1;
  void* memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  auto* board = new (memory) Board();
  std::vector<pid_t> ranks;
  for (int number = 0; number < size; number++) {
    pid_t pid = ::fork();
    if (pid == 0) {
      int code = 0;
      try {
        run_rank(number, size, devices, *board);
      } catch (const std::exception& error) {
        fmt::print("rank {}: FAILED: {}\n", number, error.what());
        std::fflush(stdout);
        code = 1;
      }
      std::_Exit(code);
    }
    ranks.push_back(pid);
  }
  bool good = true;
  for (pid_t pid : ranks) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    good = good && status == 0;
  }
  fmt::print("{}\n", good ? "all good" : "FAILED");
  return good ? 0 : 1;
}
