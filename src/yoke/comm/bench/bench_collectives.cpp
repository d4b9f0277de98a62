#include "yoke/comm/bench/bench_collectives.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "yoke/base/clock.h"
#include "yoke/comm/bench/bench_data.h"
#include "yoke/comm/queue/queued_communicator.h"
#include "yoke/comm/shared/limit.h"

namespace yoke::comm {
namespace {

using plan::Collective;

// One operation with its memory, ready to be issued repeatedly.
class Subject {
 public:
  Subject(Communicator& comm, const CollectiveBench& bench, const Copy& copy)
      : comm_(comm), bench_(bench), copy_(copy) {
    auto ranks = static_cast<int64_t>(comm.size());
    count_ = bench.op == Collective::kBarrier ? 0 : bench.bytes / static_cast<int64_t>(size_of(bench.type));
    if (has_parts()) count_ -= count_ % ranks;
    part_ = count_ / ranks;
    data_ = memory(static_cast<size_t>(count_) * size_of(bench.type));
    if (bench.op == Collective::kAllToAll || bench.op == Collective::kReduceScatter ||
        bench.op == Collective::kScatter || bench.op == Collective::kGather)
      other_ = memory(static_cast<size_t>(count_) * size_of(bench.type));
  }

  void run() {
    OpOptions options;
    options.name = "bench";
    options.algorithm = bench_.algorithm;
    switch (bench_.op) {
      case Collective::kAllReduce:
        return comm_.all_reduce(whole(), bench_.reduce, options).wait();
      case Collective::kReduce:
        return comm_.reduce(whole(), 0, bench_.reduce, options).wait();
      case Collective::kReduceScatter:
        return comm_.reduce_scatter(whole(), part_of(other_, 0), bench_.reduce, options).wait();
      case Collective::kAllGather:
        return comm_.all_gather(part_of(data_, comm_.rank()), whole(), {}, options).wait();
      case Collective::kAllToAll:
        return comm_.all_to_all(whole(), Buffer(other_.data.get(), count_, bench_.type), options).wait();
      case Collective::kBroadcast:
        return comm_.broadcast(whole(), 0, options).wait();
      case Collective::kGather:
        return comm_.gather(part_of(other_, comm_.rank()), whole(), 0, options).wait();
      case Collective::kScatter:
        return comm_.scatter(whole(), part_of(other_, 0), 0, options).wait();
      case Collective::kBarrier:
        return comm_.barrier(options).wait();
    }
  }

  void fill() {
    std::vector<std::byte> host(static_cast<size_t>(count_) * size_of(bench_.type));
    for (int64_t i = 0; i < count_; ++i)
      write_value(host.data(), i, bench_.type,
                  static_cast<double>(bench_value(comm_.rank(), i, bench_.reduce)));
    copy_(data_.data.get(), host.data(), host.size());
    if (other_.data) copy_(other_.data.get(), host.data(), host.size());
  }

  void clear() {
    std::vector<std::byte> zeros(static_cast<size_t>(count_) * size_of(bench_.type));
    copy_(data_.data.get(), zeros.data(), zeros.size());
  }

  bool right() const {
    if (comm_.rank() >= contributors()) return true;  // it only sums
    bool in_other = bench_.op == Collective::kAllToAll || bench_.op == Collective::kReduceScatter ||
                    bench_.op == Collective::kScatter;
    const Memory& where = in_other ? other_ : data_;
    std::vector<std::byte> host(static_cast<size_t>(count_) * size_of(bench_.type));
    copy_(host.data(), where.data.get(), host.size());
    auto [begin, end] = result_range();
    for (int64_t i = begin; i < end; ++i) {
      double wants = expected(i);
      double has = read_value(host.data(), i, bench_.type);
      // Means of integers are rounded once; everything else is exact.
      if (std::fabs(has - wants) > 0.01 * std::fabs(wants)) return false;
    }
    return true;
  }

 private:
  int contributors() const { return comm_.size() - bench_.spares; }
  bool has_parts() const {
    return bench_.op != Collective::kAllReduce && bench_.op != Collective::kReduce &&
           bench_.op != Collective::kBroadcast && bench_.op != Collective::kBarrier;
  }

  // Elements of the result on this rank, in the array right() reads.
  std::pair<int64_t, int64_t> result_range() const {
    bool root_only = bench_.op == Collective::kReduce || bench_.op == Collective::kGather;
    if (root_only && comm_.rank() != 0) return {0, 0};
    if (bench_.op == Collective::kReduceScatter || bench_.op == Collective::kScatter) return {0, part_};
    return {0, count_};
  }

  double expected(int64_t i) const {
    ReduceOp op = bench_.reduce;
    auto of = [&](int rank, int64_t at) { return static_cast<double>(bench_value(rank, at, op)); };
    int from = part_ == 0 ? 0 : static_cast<int>(i / part_);
    switch (bench_.op) {
      case Collective::kAllReduce:
      case Collective::kReduce:
        return bench_expected(contributors(), i, op, bench_.type);
      case Collective::kReduceScatter:
        return bench_expected(comm_.size(), comm_.rank() * part_ + i, op, bench_.type);
      case Collective::kAllGather:
      case Collective::kGather:
        return of(from, i);
      case Collective::kAllToAll:
        return of(from, comm_.rank() * part_ + i % part_);
      case Collective::kBroadcast:
        return of(0, i);
      case Collective::kScatter:
        return of(0, comm_.rank() * part_ + i);
      case Collective::kBarrier:
        return 0;
    }
    return 0;
  }

  Memory memory(size_t bytes) {
    if (!bench_.private_memory) return comm_.allocate(bytes);
    return {std::shared_ptr<void>(std::aligned_alloc(64, (bytes + 127) / 64 * 64), std::free), bytes};
  }

  Buffer whole() const { return {data_.data.get(), count_, bench_.type}; }
  Buffer part_of(const Memory& memory, int part) const {
    auto* begin = static_cast<std::byte*>(memory.data.get());
    return {begin + static_cast<size_t>(part * part_) * size_of(bench_.type), part_, bench_.type};
  }

  Communicator& comm_;
  const CollectiveBench& bench_;
  const Copy& copy_;
  int64_t count_ = 0;
  int64_t part_ = 0;
  Memory data_;
  Memory other_;
};

double of_slowest(Communicator& comm, double seconds, const Copy& copy) {
  Memory memory = comm.allocate(sizeof(double));
  copy(memory.data.get(), &seconds, sizeof(seconds));
  comm.all_reduce(Buffer(memory.data.get(), 1, DataType::kFloat64), ReduceOp::kMax).wait();
  copy(&seconds, memory.data.get(), sizeof(seconds));
  return seconds;
}

// Operations per sample: enough for about a millisecond, so that reading the clock does not matter.
int repeats_for(double seconds) {
  return static_cast<int>(std::clamp(1e-3 / seconds, 1.0, 1000.0));
}

double sample(Communicator& comm, Subject& subject, int repeats, const Copy& copy) {
  comm.barrier().wait();
  Stopwatch watch;
  for (int i = 0; i < repeats; ++i) subject.run();
  return of_slowest(comm, watch.seconds(), copy) / repeats;
}

std::vector<int64_t> gather_all(Communicator& comm, int64_t value, const Copy& copy) {
  auto ranks = static_cast<size_t>(comm.size());
  Memory mine = comm.allocate(sizeof(value));
  Memory all = comm.allocate(sizeof(value) * ranks);
  copy(mine.data.get(), &value, sizeof(value));
  comm.all_gather(Buffer(mine.data.get(), 1, DataType::kInt64),
                  Buffer(all.data.get(), static_cast<int64_t>(ranks), DataType::kInt64))
      .wait();
  std::vector<int64_t> values(ranks);
  copy(values.data(), all.data.get(), sizeof(value) * ranks);
  return values;
}

constexpr double kLimitSeconds = 60;

// nullptr: this operation has no in-place limit.
Backend* limited(Communicator& comm, const CollectiveBench& bench) {
  bool shares = comm.backend() == "shm" || comm.backend() == "local";
  bool comparable = bench.op == Collective::kAllReduce && bench.type == DataType::kFloat32 &&
                    bench.reduce == ReduceOp::kSum && !bench.private_memory && bench.bytes >= 4 * comm.size();
  return shares && comparable && comm.size() > 1 ? backend_below(comm) : nullptr;
}

// Alternates samples and the limit, so that other load on the machine affects both.
void measure(Communicator& comm, const CollectiveBench& bench, Subject& subject, CollectiveResult& result,
             const Copy& copy) {
  double once = sample(comm, subject, 2, copy);
  int repeats = repeats_for(once);
  int samples =
      bench.iterations > 0 ? bench.iterations : static_cast<int>(std::clamp(2 / (once * repeats), 5.0, 20.0));
  sample(comm, subject, repeats, copy);  // warm
  Backend* backend = limited(comm, bench);
  std::vector<double> seconds, limits;
  for (int i = 0; i < samples; ++i) {
    seconds.push_back(sample(comm, subject, repeats, copy));
    if (backend) {
      double limit =
          in_place_limit(*backend, static_cast<size_t>(bench.bytes), 3, Deadline::after(kLimitSeconds));
      limits.push_back(of_slowest(comm, limit, copy));
    }
  }
  std::sort(seconds.begin(), seconds.end());
  result.median = seconds[seconds.size() / 2];
  result.p95 = seconds[std::min(seconds.size() - 1, seconds.size() * 95 / 100)];
  // The best of both: a limit is what the machine can do, not what it did while other processes had its
  // cores.
  if (!limits.empty())
    result.limit_fraction = *std::min_element(limits.begin(), limits.end()) / seconds.front();
}

}  // namespace

double bus_factor(Collective op, int ranks) {
  double n = ranks;
  switch (op) {
    case Collective::kAllReduce:
      return 2 * (n - 1) / n;
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kBarrier:
      return 1;
    default:
      return (n - 1) / n;
  }
}

CollectiveResult bench_collective(Communicator& comm, const CollectiveBench& bench, const Copy& copy) {
  Subject subject(comm, bench, copy);
  subject.fill();
  CollectiveResult result;
  Counters before = comm.counters();
  subject.run();
  Counters after = comm.counters();
  result.algorithm = after.algorithm;
  if (bench.check) result.correct = subject.right();
  result.correct = of_slowest(comm, result.correct ? 0 : 1, copy) == 0;
  result.bytes_sent = gather_all(comm, after.bytes_sent - before.bytes_sent, copy);
  result.messages = gather_all(comm, after.messages_sent - before.messages_sent, copy);

  subject.clear();  // repeated sums would overflow
  measure(comm, bench, subject, result, copy);
  result.algbw = static_cast<double>(bench.bytes) / result.median;
  result.busbw = result.algbw * bus_factor(bench.op, comm.size() - bench.spares);
  return result;
}

}  // namespace yoke::comm
