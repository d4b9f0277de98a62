#include "yoke/comm/shared/collectives.h"

#include "yoke/comm/shared/limit.h"
#include "yoke/comm/shared/ranks_for_tests.h"
#include "yoke/kernels/reduce.h"
#include "yoke/kernels/reduce_half.h"

namespace yoke::comm {
namespace {

using testing::Rank;
using Bytes = std::vector<std::byte>;

constexpr DataType kTypes[] = {DataType::kFloat32,  DataType::kFloat64, DataType::kFloat16,
                               DataType::kBFloat16, DataType::kInt8,    DataType::kUint8,
                               DataType::kInt16,    DataType::kInt32,   DataType::kInt64};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax, ReduceOp::kMin,
                             ReduceOp::kProd};

// What rank `rank` brings, the same on whoever asks.
Bytes data_of(int rank, int64_t count, DataType type) {
  Bytes data(static_cast<size_t>(count) * size_of(type));
  for (int64_t i = 0; i < count; ++i) {
    double value = static_cast<double>((i * 31 + rank * 17) % 23) - 7.25;
    auto whole = static_cast<int64_t>(value);
    auto single = static_cast<float>(value);
    uint16_t half =
        type == DataType::kFloat16 ? kernels::fp16_of_float(single) : kernels::bf16_of_float(single);
    const void* from = &whole;  // little-endian: the first bytes are the small types
    if (type == DataType::kFloat32) from = &single;
    if (type == DataType::kFloat64) from = &value;
    if (type == DataType::kFloat16 || type == DataType::kBFloat16) from = &half;
    std::memcpy(data.data() + static_cast<size_t>(i) * size_of(type), from, size_of(type));
  }
  return data;
}

Bytes combined(int size, int64_t count, DataType type, ReduceOp op) {
  std::vector<Bytes> inputs;
  std::vector<const void*> sources;
  for (int r = 0; r < size; ++r) inputs.push_back(data_of(r, count, type));
  for (const Bytes& input : inputs) sources.push_back(input.data());
  Bytes result(static_cast<size_t>(count) * size_of(type));
  void* out = result.data();
  kernels::reference::reduce({&out, 1}, sources, static_cast<size_t>(count), type, op);
  return result;
}

Bytes slice(const Bytes& all, int64_t begin, int64_t count, DataType type) {
  auto at = all.begin() + begin * static_cast<int64_t>(size_of(type));
  return Bytes(at, at + count * static_cast<int64_t>(size_of(type)));
}

// Where a rank's buffers lie: memory of the backend, memory of its own, or some ranks so and some so.
enum class Where { kShared, kPrivate, kMixed };

struct Space {
  Memory memory;
  int64_t count;
  DataType type;
  std::byte* data() const { return static_cast<std::byte*>(memory.data.get()); }
  operator Buffer() const { return {data(), count, type}; }
  Bytes bytes() const { return Bytes(data(), data() + memory.bytes); }
};

Space space(Rank& rank, Where where, int64_t count, DataType type, const Bytes& content = {}) {
  size_t bytes = static_cast<size_t>(count) * size_of(type);
  bool own = where == Where::kPrivate || (where == Where::kMixed && rank.rank % 2 == 1);
  Space made{{}, count, type};
  if (own) {
    auto memory = std::make_shared<Bytes>(bytes + 1, std::byte{0x55});
    made.memory = {std::shared_ptr<void>(memory, memory->data()), bytes};
  } else {
    made.memory = rank.backend.allocate(bytes);
  }
  if (!content.empty()) std::memcpy(made.data(), content.data(), bytes);
  return made;
}

std::string text(const Rank& rank, Where where, int64_t count, DataType type) {
  return fmt::format("rank {} of {}, {} x {}, place {}", rank.rank, rank.size, count, to_string(type),
                     static_cast<int>(where));
}

void check_reductions(Rank& rank, Where where, int64_t count, DataType type, ReduceOp op) {
  std::string what = text(rank, where, count, type) + " " + to_string(op);
  Bytes mine = data_of(rank.rank, count, type), all = combined(rank.size, count, type, op);
  Space data = space(rank, where, count, type, mine);
  rank.run(rank.ask().all_reduce(data, op));
  EXPECT_EQ(data.bytes(), all) << "all_reduce " << what;

  int root = rank.size - 1;
  Space given = space(rank, where, count, type, mine);
  rank.run(rank.ask().reduce(given, root, op));
  EXPECT_TRUE(rank.rank != root || given.bytes() == all) << "reduce " << what;

  int64_t total = count * rank.size;
  Space input = space(rank, where, total, type, data_of(rank.rank, total, type));
  Space output = space(rank, where, count, type);
  rank.run(rank.ask().reduce_scatter(Buffer(input), output, op));
  Bytes expected = slice(combined(rank.size, total, type, op), rank.rank * count, count, type);
  EXPECT_EQ(output.bytes(), expected) << "reduce_scatter " << what;

  size_t part = static_cast<size_t>(rank.rank * count) * size_of(type);
  Buffer own_part(input.data() + part, count, type);
  rank.run(rank.ask().reduce_scatter(Buffer(input), own_part, op));
  Bytes left = data_of(rank.rank, total, type);
  std::copy(expected.begin(), expected.end(), left.begin() + static_cast<int64_t>(part));
  EXPECT_EQ(input.bytes(), left) << "reduce_scatter in place " << what;
}

void check_movements(Rank& rank, Where where, int64_t count, DataType type) {
  std::string what = text(rank, where, count, type);
  int64_t total = count * rank.size;
  int root = rank.size / 2;
  Bytes mine = data_of(rank.rank, count, type), gathered, exchanged;
  for (int r = 0; r < rank.size; ++r) {
    Bytes one = data_of(r, count, type),
          part = slice(data_of(r, total, type), rank.rank * count, count, type);
    gathered.insert(gathered.end(), one.begin(), one.end());
    exchanged.insert(exchanged.end(), part.begin(), part.end());
  }
  Space small = space(rank, where, count, type, mine), large = space(rank, where, total, type);
  rank.run(rank.ask().all_gather(Buffer(small), large, {}));
  EXPECT_EQ(large.bytes(), gathered) << "all_gather " << what;

  Space again = space(rank, where, total, type);
  std::byte* own = again.data() + mine.size() * static_cast<size_t>(rank.rank);
  if (!mine.empty()) std::memcpy(own, mine.data(), mine.size());
  rank.run(rank.ask().all_gather(ConstBuffer(own, count, type), again, {}));
  EXPECT_EQ(again.bytes(), gathered) << "all_gather in place " << what;

  Space from = space(rank, where, total, type, data_of(rank.rank, total, type)),
        to = space(rank, where, total, type);
  rank.run(rank.ask().all_to_all(Buffer(from), to));
  EXPECT_EQ(to.bytes(), exchanged) << "all_to_all " << what;

  Space news = space(rank, where, count, type, mine);
  rank.run(rank.ask().broadcast(news, root));
  EXPECT_EQ(news.bytes(), data_of(root, count, type)) << "broadcast " << what;

  Space part = space(rank, where, count, type);
  rank.run(rank.ask().scatter(rank.rank == root ? Buffer(from) : Buffer(nullptr, 0, type), part, root));
  EXPECT_EQ(part.bytes(), slice(data_of(root, total, type), rank.rank * count, count, type))
      << "scatter " << what;

  rank.run(rank.ask().gather(Buffer(small), rank.rank == root ? Buffer(to) : Buffer(nullptr, 0, type), root));
  EXPECT_TRUE(rank.rank != root || to.bytes() == gathered) << "gather " << what;

  std::vector<int64_t> counts;
  Bytes uneven;
  for (int r = 0; r < rank.size; ++r) {
    counts.push_back(r == 1 ? 0 : count / (r + 1) + r);
    Bytes one = data_of(r, counts.back(), type);
    uneven.insert(uneven.end(), one.begin(), one.end());
  }
  auto all_counts = static_cast<int64_t>(uneven.size() / size_of(type));
  int64_t own_count = counts[static_cast<size_t>(rank.rank)];
  Space given = space(rank, where, own_count, type, data_of(rank.rank, own_count, type));
  Space joined = space(rank, where, all_counts, type);
  rank.run(rank.ask().all_gather(Buffer(given), joined, counts));
  EXPECT_EQ(joined.bytes(), uneven) << "all_gather of unequal parts " << what;
  rank.run(rank.ask().barrier());
}

void check_everything(Rank& rank) {
  for (Where where : {Where::kShared, Where::kPrivate, Where::kMixed}) {
    for (DataType type : kTypes)
      for (ReduceOp op : kOps) check_reductions(rank, where, 53, type, op);
    for (int64_t count : {0, 1, 3, 4099, 30011}) {
      check_reductions(rank, where, count, DataType::kFloat32, ReduceOp::kSum);
      check_movements(rank, where, count, DataType::kFloat32);
    }
    check_reductions(rank, where, 70001, DataType::kFloat32, ReduceOp::kMean);  // more than a slot
    check_reductions(rank, where, 30001, DataType::kBFloat16, ReduceOp::kSum);
    check_movements(rank, where, 40001, DataType::kInt8);
  }
}

TEST(LocalCollectives, AreRightForEveryOperationTypeAndSize) {
  for (int size = 1; size <= 5; ++size) testing::run_local(size, check_everything);
}

TEST(ShmCollectives, AreRightForEveryOperationTypeAndSize) {
  for (int size = 1; size <= 5; ++size) testing::run_shm(size, check_everything);
}

// Many small operations one after the other, of changing sizes, so that slots and posts are reused at once.
void check_in_a_row(Rank& rank) {
  uint32_t state = 7;
  for (int i = 0; i < 500; ++i) {
    state = state * 1664525u + 1013904223u;
    int64_t count = (state >> 8) % 3 == 0 ? 9000 : (state >> 12) % 100;
    std::vector<int64_t> data(static_cast<size_t>(count), rank.rank + i);
    Space memory = space(rank, i % 4 == 0 ? Where::kShared : Where::kPrivate, count, DataType::kInt64);
    if (count > 0) std::memcpy(memory.data(), data.data(), static_cast<size_t>(count) * 8);
    rank.run(rank.ask().all_reduce(memory, ReduceOp::kSum));
    std::vector<int64_t> expected(data.size(), rank.size * (rank.size - 1) / 2 + rank.size * i);
    const auto* got = reinterpret_cast<const int64_t*>(memory.data());
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), got)) << i;
  }
}

TEST(LocalCollectives, KeepApartInARow) {
  for (int size : {2, 3, 8}) testing::run_local(size, check_in_a_row);
}

TEST(ShmCollectives, KeepApartInARow) {
  for (int size : {2, 4}) testing::run_shm(size, check_in_a_row);
}

TEST(SharedBackend, CountsBytesByTheFormulas) {
  testing::run_local(4, [](Rank& rank) {
    std::vector<float> data(10, 1), large(40);
    auto moved = [&](Operation operation) {
      Counters before = rank.backend.counters();
      rank.run(std::move(operation));
      return rank.backend.counters().bytes_sent - before.bytes_sent;
    };
    // Parts of 10 elements are 2, 3, 2, 3.
    int64_t own = rank.rank % 2 == 0 ? 2 : 3;
    EXPECT_EQ(moved(rank.ask().all_reduce(data, ReduceOp::kSum)), 4 * (10 - own + 3 * own));
    EXPECT_EQ(moved(rank.ask().all_gather(data, large, {})), 4 * 30);
    EXPECT_EQ(moved(rank.ask().reduce_scatter(large, data, ReduceOp::kSum)), 4 * 30);
    EXPECT_EQ(moved(rank.ask().broadcast(data, 2)), rank.rank == 2 ? 4 * 30 : 0);
    EXPECT_EQ(moved(rank.ask().barrier()), 0);
    EXPECT_EQ(rank.backend.counters().operations, 5);
  });
}

TEST(SharedBackend, HasOneAlgorithmAndAtMostSixtyFourRanks) {
  testing::run_local(1, [](Rank& rank) {
    std::vector<float> data(4, 1);
    Operation operation = rank.ask().all_reduce(data, ReduceOp::kSum);
    operation.algorithm = plan::Algorithm::kDirect;
    rank.run(operation);
    operation.algorithm = plan::Algorithm::kRing;
    EXPECT_THROW(rank.run(operation), ConfigError);
  });
  auto failure = std::make_shared<cluster::Failure>();
  EXPECT_THROW(make_local_backends(65, failure), ConfigError);
  EXPECT_THROW(make_local_backends(0, failure), ConfigError);
}

TEST(InPlaceLimit, IsATimeForSharedMemoryOnly) {
  testing::run_local(2, [](Rank& rank) {
    EXPECT_GT(in_place_limit(rank.backend, 100000, 3, Deadline::after(30)), 0);
    EXPECT_THROW(in_place_limit(rank.backend, 100000, 0, Deadline::after(30)), ConfigError);
  });
}

TEST(Split, MakesGroupsThatWorkAtTheSameTimeAndShareMemory) {
  auto body = [](Rank& rank) {
    Memory memory = rank.backend.allocate(400000);  // of the parent; zero-copy in the child
    for (uint64_t turn = 0; turn < 3; ++turn) {
      std::vector<int> members = rank.rank % 2 == 0 ? std::vector<int>{4, 0, 2} : std::vector<int>{1, 3};
      uint64_t group = 100 + 10 * turn + static_cast<uint64_t>(rank.rank % 2);
      auto child = rank.backend.split(members, group, Deadline::after(30));
      int place = static_cast<int>(std::find(members.begin(), members.end(), rank.rank) - members.begin());
      Rank inner{*child, place, static_cast<int>(members.size()), rank.failure};
      auto* data = static_cast<float*>(memory.data.get());
      std::fill(data, data + 100000, static_cast<float>(rank.rank));
      inner.run(inner.ask().all_reduce(Buffer(data, 100000, DataType::kFloat32), ReduceOp::kSum));
      EXPECT_EQ(data[0], rank.rank % 2 == 0 ? 6.0f : 4.0f);
      EXPECT_EQ(data[99999], data[0]);
      std::vector<int32_t> first = {rank.rank};
      inner.run(inner.ask().broadcast(first, 0));
      EXPECT_EQ(first[0], members[0]);
    }
    rank.run(rank.ask().barrier());
  };
  testing::run_local(5, body);
  testing::run_shm(5, body);
}

}  // namespace
}  // namespace yoke::comm
