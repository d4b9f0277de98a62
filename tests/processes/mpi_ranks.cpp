// One rank under mpirun: `yoke_mpi_test openmpi|mpich CASE`. Prints one line a rank; test_mpi.py reads them.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <thread>

#include "backend_suite.h"
#include "yoke/comm/mpi/mpi.h"

namespace {

using namespace yoke;
using comm::Backend;

const std::vector<DataType> kTypes = {DataType::kFloat32,  DataType::kFloat64, DataType::kFloat16,
                                      DataType::kBFloat16, DataType::kInt8,    DataType::kUint8,
                                      DataType::kInt16,    DataType::kInt32,   DataType::kInt64};

int number_from(const char* first, const char* second, int otherwise) {
  const char* text = std::getenv(first);
  if (text == nullptr) text = std::getenv(second);
  return text == nullptr ? otherwise : std::atoi(text);
}

struct Job {
  comm::MpiSetup setup;
  std::unique_ptr<Backend> backend;
  test::Arena arena;
  test::Suite suite() { return {*backend, setup.rank, setup.size, arena, kTypes}; }
};

void say(const Job& job, const std::string& text) {
  fmt::print("rank {}: {}\n", job.setup.rank, text);
  std::fflush(stdout);
}

void all_operations(Job& job) {
  test::Suite suite = job.suite();
  suite.every_operation();
  say(job, fmt::format("ok, {} checks", suite.checks()));
}

void expect(bool good, const std::string& what) {
  if (!good) throw std::runtime_error(what);
}

// Sums that depend on the order are the same bits everywhere, and NaN goes through max.
void same_bits(Job& job) {
  test::Suite suite = job.suite();
  std::vector<float> x(1001), all(x.size() * static_cast<size_t>(job.setup.size));
  for (size_t i = 0; i < x.size(); i++)
    x[i] = std::sin(static_cast<float>(i + 7 * static_cast<size_t>(job.setup.rank))) * 1e3f;
  std::vector<float> first = x;
  for (int turn = 0; turn < 2; turn++) {
    std::vector<float> sum = x;
    auto o = suite.operation(plan::Collective::kAllReduce, DataType::kFloat32, 1001);
    o.input = sum;
    o.output = comm::Buffer(sum);
    suite.run(o);
    if (turn == 0) first = sum;
    expect(first == sum, "two runs differ");
  }
  auto o =
      suite.operation(plan::Collective::kAllGather, DataType::kFloat32, static_cast<int64_t>(all.size()));
  o.input = first;
  o.output = comm::Buffer(all);
  suite.run(o);
  for (size_t i = 0; i < all.size(); i++) expect(all[i] == first[i % first.size()], "two ranks differ");
  for (int holder = 0; holder < job.setup.size; holder++) {
    std::vector<float> v(3, holder == job.setup.rank ? std::numeric_limits<float>::quiet_NaN() : 1.0f);
    auto m = suite.operation(plan::Collective::kAllReduce, DataType::kFloat32, 3);
    m.reduce = ReduceOp::kMax;
    m.input = v;
    m.output = comm::Buffer(v);
    suite.run(m);
    expect(std::isnan(v[1]), "NaN got lost");
  }
  say(job, "ok");
}

// 60000 + 60000 is no fp16, their mean is.
void large_halves(Job& job) {
  constexpr uint16_t kLarge = 0x7b53;
  test::Suite suite = job.suite();
  for (auto op : {plan::Collective::kAllReduce, plan::Collective::kReduceScatter}) {
    int64_t parts = op == plan::Collective::kReduceScatter ? job.setup.size : 1;
    std::vector<uint16_t> x(static_cast<size_t>(100 * parts), kLarge), out(100);
    auto o = suite.operation(op, DataType::kFloat16, 100 * parts);
    o.reduce = ReduceOp::kMean;
    o.input = comm::ConstBuffer(x.data(), 100 * parts, DataType::kFloat16);
    o.output = comm::Buffer(parts > 1 ? out.data() : x.data(), 100, DataType::kFloat16);
    suite.run(o);
    for (uint16_t bits : parts > 1 ? out : x)
      expect(std::abs(bits - kLarge) <= 3, fmt::format("a mean of fp16 is {:04x}", bits));
  }
  say(job, "ok");
}

void split_groups(Job& job) {
  int rank = job.setup.rank, size = job.setup.size;
  std::vector<int> members;  // odd and even, backwards
  for (int r = size - 1; r >= 0; r--)
    if (r % 2 == rank % 2) members.push_back(r);
  auto group = job.backend->split(members, static_cast<uint64_t>(1000 + rank % 2), Deadline::after(60));
  auto place = static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
  test::Suite suite(*group, place, static_cast<int>(members.size()), job.arena,
                    {DataType::kFloat32, DataType::kBFloat16});
  suite.every_operation();
  say(job, fmt::format("ok, {} checks", suite.checks()));
}

void counters(Job& job) {
  test::Suite suite = job.suite();
  std::vector<float> x(12, 1.0f);
  auto o = suite.operation(plan::Collective::kAllReduce, DataType::kFloat32, 12);
  o.input = x;
  o.output = comm::Buffer(x);
  suite.run(o);
  comm::Counters c = job.backend->counters();
  say(job, fmt::format("operations {} sent {} received {} messages {}", c.operations, c.bytes_sent,
                       c.bytes_received, c.messages_sent));
}

// The last rank calls something else.
void mismatch(Job& job) {
  test::Suite suite = job.suite();
  bool odd = job.setup.rank == job.setup.size - 1;
  std::vector<float> x(8, 1.0f);
  auto o = suite.operation(odd ? plan::Collective::kBroadcast : plan::Collective::kAllReduce,
                           DataType::kFloat32, 8, odd ? "weights" : "bucket 3");
  o.input = x;
  o.output = comm::Buffer(x);
  try {
    suite.run(o);
  } catch (const comm::MismatchError& error) {
    return say(job, std::string("mismatch: ") + error.what());
  }
  throw std::runtime_error("nobody noticed");
}

void wrong_size_received(Job& job) {
  std::vector<float> x(static_cast<size_t>(job.setup.rank == 0 ? 8 : 9));
  if (job.setup.rank < 2) {
    comm::Transfer t;
    t.is_send = job.setup.rank == 0;
    t.peer = 1 - job.setup.rank;
    t.data = reinterpret_cast<std::byte*>(x.data());
    t.bytes = x.size() * 4;
    t.descriptor.op = t.is_send ? comm::kSendOp : comm::kReceiveOp;
    t.descriptor.count = static_cast<int64_t>(x.size());
    t.fingerprint = t.descriptor.fingerprint();
    comm::Transfer* one[] = {&t};
    Deadline deadline = Deadline::after(t.is_send ? 2 : 30);
    try {
      while (!job.backend->advance(t) && !deadline.passed()) job.backend->wait_for(one, deadline);
    } catch (const comm::MismatchError& error) {
      say(job, std::string("mismatch: ") + error.what());
    }
  }
  say(job, "ok");
}

// The last rank does not come.
void deadline(Job& job) {
  if (job.setup.rank == job.setup.size - 1) return;
  test::Suite suite = job.suite();
  std::vector<float> x(8, 1.0f);
  auto o = suite.operation(plan::Collective::kAllReduce, DataType::kFloat32, 8, "lonely");
  o.input = x;
  o.output = comm::Buffer(x);
  try {
    suite.run(o, 0.5);
  } catch (const CommError& error) {
    return say(job, std::string("deadline: ") + error.what());
  }
  throw std::runtime_error("did not notice");
}

// News of a failure ends the wait long before its deadline.
void failure(Job& job) {
  if (job.setup.rank == job.setup.size - 1) return;
  std::thread news([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    job.setup.failure->raise(
        {.rank = 2, .host = "here", .kind = "killed", .what = "rank 2 was killed", .next = "Look at it."});
  });
  test::Suite suite = job.suite();
  auto o = suite.operation(plan::Collective::kBarrier, DataType::kFloat32, 0, "end");
  Stopwatch watch;
  try {
    suite.run(o, 300);
  } catch (const CommError& error) {
    news.join();
    return say(job, fmt::format("failure {}: {}", watch.seconds() < 30 ? "at once" : "late", error.what()));
  }
  news.join();
  throw std::runtime_error("did not notice");
}

void speed(Job& job) {
  test::Suite suite = job.suite();
  for (int64_t count : {int64_t{1}, int64_t{256}, int64_t{1} << 24}) {
    std::vector<float> x(static_cast<size_t>(count), 1.0f);
    int turns = count > 1000 ? 5 : 500;
    Stopwatch watch;
    for (int turn = 0; turn < turns; turn++) {
      auto o = suite.operation(plan::Collective::kAllReduce, DataType::kFloat32, count);
      o.input = x;
      o.output = comm::Buffer(x);
      suite.run(o);
    }
    say(job, fmt::format("all_reduce {} bytes: {:.2f} us", 4 * count, watch.seconds() / turns * 1e6));
  }
}

struct Case {
  const char* name;
  void (*run)(Job&);
};
constexpr Case kCases[] = {
    {"operations", all_operations}, {"same_bits", same_bits}, {"split", split_groups},
    {"counters", counters},         {"mismatch", mismatch},   {"receive", wrong_size_received},
    {"deadline", deadline},         {"failure", failure},     {"speed", speed},
    {"large_halves", large_halves}};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: yoke_mpi_test openmpi|mpich CASE\n");
    return 2;
  }
  try {
    Job job;
    job.setup.launcher = argv[1];
    job.setup.rank = number_from("OMPI_COMM_WORLD_RANK", "PMI_RANK", 0);
    job.setup.size = number_from("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", 1);
    job.setup.failure = std::make_shared<cluster::Failure>();
    job.setup.timeout = 20;
    job.backend = comm::make_mpi_backend(job.setup);
    for (const Case& one : kCases)
      if (one.name == std::string(argv[2])) return one.run(job), 0;
    throw std::runtime_error(std::string("no case ") + argv[2]);
  } catch (const std::exception& error) {
    fmt::print("FAILED: {}\n", error.what());
    std::fflush(stdout);
    return 1;
  }
}
