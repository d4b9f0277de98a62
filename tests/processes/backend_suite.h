// Every operation of a backend against known results, for programs that are one rank of a job (MPI, NCCL).
#pragma once

#include <fmt/core.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <vector>

#include "yoke/comm/backend.h"
#include "yoke/comm/polling_for_tests.h"

namespace yoke::test {

// Where buffers live: host memory here, device memory for NCCL.
class Arena {
 public:
  virtual ~Arena() = default;
  virtual std::shared_ptr<void> make(size_t bytes) {
    return {::operator new(bytes + 64), [](void* p) { ::operator delete(p); }};
  }
  virtual void write(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }
  virtual void read(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }
};

// Small whole numbers, exact in every type.
inline uint16_t half_of(float value, bool brain) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, 4);
  if (brain || value == 0) return static_cast<uint16_t>(bits >> 16);
  uint32_t exponent = ((bits >> 23) & 255) - 127 + 15;
  return static_cast<uint16_t>((bits >> 31 << 15) | exponent << 10 | ((bits >> 13) & 1023));
}

template <class T>
void put(std::vector<std::byte>& bytes, T value) {
  const auto* raw = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), raw, raw + sizeof(T));
}

inline std::vector<std::byte> encode(DataType type, const std::vector<double>& values) {
  std::vector<std::byte> bytes;
  for (double v : values) {
    switch (type) {
      case DataType::kFloat32:
        put(bytes, static_cast<float>(v));
        break;
      case DataType::kFloat64:
        put(bytes, v);
        break;
      case DataType::kFloat16:
        put(bytes, half_of(static_cast<float>(v), false));
        break;
      case DataType::kBFloat16:
        put(bytes, half_of(static_cast<float>(v), true));
        break;
      case DataType::kInt8:
        put(bytes, static_cast<int8_t>(v));
        break;
      case DataType::kUint8:
        put(bytes, static_cast<uint8_t>(v));
        break;
      case DataType::kInt16:
        put(bytes, static_cast<int16_t>(v));
        break;
      case DataType::kInt32:
        put(bytes, static_cast<int32_t>(v));
        break;
      case DataType::kInt64:
        put(bytes, static_cast<int64_t>(v));
        break;
    }
  }
  return bytes;
}

class Suite {
 public:
  using Op = plan::Collective;

  Suite(comm::Backend& backend, int rank, int size, Arena& arena, std::vector<DataType> types)
      : backend_(backend), rank_(rank), size_(size), arena_(arena), types_(std::move(types)) {}

  int checks() const { return checks_; }

  void every_operation() {
    for (DataType type : types_)
      for (int64_t count : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{7}, int64_t{5000}}) {
        for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProd})
          reductions(type, op, count);
        moves(type, count);
      }
    barrier();
    transfers();
    polling();
  }

  comm::Operation operation(Op op, DataType type, int64_t count, const std::string& name = "x") {
    comm::Operation o;
    o.op = op;
    o.descriptor.op = static_cast<uint8_t>(op);
    o.descriptor.type = type;
    o.descriptor.count = count;
    o.descriptor.number = ++number_;
    std::strncpy(o.descriptor.name, name.c_str(), sizeof(o.descriptor.name) - 1);
    return o;
  }

  void run(comm::Operation& o, double seconds = 60) {
    o.descriptor.reduce = o.reduce;
    o.descriptor.root = o.root;
    o.fingerprint = o.descriptor.fingerprint();
    backend_.run(o, Deadline::after(seconds));
  }

  void polling() {
    auto zeroed = [&](size_t bytes) {
      std::shared_ptr<void> memory = arena_.make(bytes);
      arena_.write(memory.get(), std::vector<std::byte>(bytes).data(), bytes);
      return memory;
    };
    comm::test::poll_every_operation(backend_, rank_, size_, zeroed);
    checks_++;
  }

  // Sends once around the ring of ranks, and receives at the same time.
  void transfers() {
    if (size_ == 1) return;
    for (int64_t count : {int64_t{0}, int64_t{3}, int64_t{200000}}) {
      Data out =
          data(DataType::kFloat32, count, [&](int64_t i) { return static_cast<double>(i % 50 + rank_); });
      Data in = data(DataType::kFloat32, count, [](int64_t) { return -1.0; });
      int before = (rank_ + size_ - 1) % size_;
      comm::Transfer send = transfer(out, true, (rank_ + 1) % size_), receive = transfer(in, false, before);
      comm::Transfer* both[] = {&send, &receive};
      bool done[2] = {false, false};
      Deadline deadline = Deadline::after(60);
      while (!done[0] || !done[1]) {
        for (int i = 0; i < 2; i++) done[i] = done[i] || backend_.advance(*both[i]);
        if (deadline.passed()) throw std::runtime_error("a transfer does not end");
        std::vector<comm::Transfer*> open;
        for (int i = 0; i < 2; i++)
          if (!done[i]) open.push_back(both[i]);
        if (!open.empty()) backend_.wait_for(open, deadline);
      }
      expect(
          in, count, [&](int64_t i) { return static_cast<double>(i % 50 + before); }, "receive");
    }
  }

 private:
  struct Data {
    std::shared_ptr<void> memory;
    DataType type;
    int64_t count;
    comm::Buffer buffer() const { return {memory.get(), count, type}; }
  };
  using Value = std::function<double(int64_t)>;

  std::vector<std::byte> bytes_of(DataType type, int64_t count, const Value& value) {
    std::vector<double> values;
    for (int64_t i = 0; i < count; i++) values.push_back(value(i));
    return encode(type, values);
  }

  Data data(DataType type, int64_t count, const Value& value) {
    std::vector<std::byte> bytes = bytes_of(type, count, value);
    Data d{arena_.make(bytes.size()), type, count};
    arena_.write(d.memory.get(), bytes.data(), bytes.size());
    return d;
  }

  void expect(const Data& d, int64_t count, const Value& value, const std::string& what) {
    std::vector<std::byte> wanted = bytes_of(d.type, count, value), got(wanted.size());
    arena_.read(got.data(), d.memory.get(), got.size());
    checks_++;
    if (got != wanted)
      throw std::runtime_error(
          fmt::format("rank {}: {} of {} x {} gives a wrong result", rank_, what, count, to_string(d.type)));
  }

  // What rank r brings at place i.
  double brings(int r, int64_t i, ReduceOp op) const {
    double v = static_cast<double>((i + r) % 3 + 1);
    return op == ReduceOp::kMean ? v * size_ : v;
  }
  double combined(int64_t i, ReduceOp op) const {
    double value = brings(0, i, op);
    for (int r = 1; r < size_; r++) {
      double v = brings(r, i, op);
      if (op == ReduceOp::kMax)
        value = std::max(value, v);
      else if (op == ReduceOp::kMin)
        value = std::min(value, v);
      else if (op == ReduceOp::kProd)
        value *= v;
      else
        value += v;
    }
    return op == ReduceOp::kMean ? value / size_ : value;
  }

  void reductions(DataType type, ReduceOp op, int64_t count) {
    auto mine = [&](int64_t i) { return brings(rank_, i, op); };
    auto wanted = [&](int64_t i) { return combined(i, op); };
    std::string what = to_string(op);
    Data all = data(type, count, mine);
    comm::Operation o = operation(Op::kAllReduce, type, count);
    o.reduce = op;
    o.output = all.buffer();
    o.input = all.buffer();
    run(o);
    expect(all, count, wanted, "all_reduce " + what);

    Data one = data(type, count, mine);
    o = operation(Op::kReduce, type, count);
    o.reduce = op;
    o.root = size_ - 1;
    o.output = one.buffer();
    o.input = one.buffer();
    run(o);
    if (rank_ == o.root) expect(one, count, wanted, "reduce " + what);

    // Once apart, once into its own part of the input, the rest of which stays.
    Data parts = data(type, count * size_, mine), part = data(type, count, mine);
    for (bool inside : {false, true}) {
      o = operation(Op::kReduceScatter, type, count * size_);
      o.reduce = op;
      o.input = parts.buffer();
      auto* own =
          static_cast<std::byte*>(parts.memory.get()) + static_cast<size_t>(count * rank_) * size_of(type);
      o.output = comm::Buffer(inside ? own : part.memory.get(), count, type);
      run(o);
      auto shifted = [&](int64_t i) { return combined(i + count * rank_, op); };
      if (!inside) expect(part, count, shifted, "reduce_scatter " + what);
    }
    expect(
        parts, count * size_,
        [&](int64_t i) { return i / std::max<int64_t>(count, 1) == rank_ ? combined(i, op) : mine(i); },
        "reduce_scatter in place " + what);
  }

  void moves(DataType type, int64_t count) {
    auto from = [](int r, int64_t i) { return static_cast<double>((i + 5 * r) % 19); };
    auto mine = [&](int64_t i) { return from(rank_, i); };
    auto nothing = [](int64_t) { return 99.0; };
    auto all_parts = [&](int64_t i) { return from(static_cast<int>(i / count), i % count); };

    Data in = data(type, count, mine), out = data(type, count * size_, nothing);
    comm::Operation o = operation(Op::kAllGather, type, count * size_);
    o.input = in.buffer();
    o.output = out.buffer();
    run(o);
    expect(out, count * size_, all_parts, "all_gather");

    unequal(type, count, mine, from);

    Data to_all = data(type, count * size_, [&](int64_t i) { return from(rank_, i); });
    Data from_all = data(type, count * size_, nothing);
    o = operation(Op::kAllToAll, type, count * size_);
    o.input = to_all.buffer();
    o.output = from_all.buffer();
    run(o);
    expect(
        from_all, count * size_,
        [&](int64_t i) { return from(static_cast<int>(i / count), i % count + rank_ * count); },
        "all_to_all");

    Data spread = data(type, count, mine);
    o = operation(Op::kBroadcast, type, count);
    o.root = size_ / 2;
    o.input = spread.buffer();
    o.output = spread.buffer();
    run(o);
    expect(
        spread, count, [&](int64_t i) { return from(o.root, i); }, "broadcast");

    Data gathered = data(type, count * size_, nothing);
    o = operation(Op::kGather, type, count);
    o.root = size_ - 1;
    o.input = in.buffer();
    o.output = gathered.buffer();
    run(o);
    if (rank_ == o.root) expect(gathered, count * size_, all_parts, "gather");

    Data scattered = data(type, count, nothing);
    o = operation(Op::kScatter, type, count);
    o.root = 0;
    o.input = to_all.buffer();
    o.output = scattered.buffer();
    run(o);
    expect(
        scattered, count, [&](int64_t i) { return from(0, i + rank_ * count); }, "scatter");
  }

  // Rank r brings count + r elements, the first rank none; the input is its place in the output.
  template <class Mine, class From>
  void unequal(DataType type, int64_t count, const Mine& mine, const From& from) {
    std::vector<int64_t> parts, begins;
    int64_t total = 0;
    for (int r = 0; r < size_; r++) {
      parts.push_back(r == 0 ? 0 : count + r);
      begins.push_back(total);
      total += parts.back();
    }
    auto own = static_cast<size_t>(rank_);
    Data out = data(type, total, [&](int64_t i) { return mine(i - begins[own]); });
    comm::Operation o = operation(Op::kAllGather, type, total);
    o.parts = parts;
    o.output = out.buffer();
    o.input = comm::ConstBuffer(
        static_cast<std::byte*>(out.memory.get()) + static_cast<size_t>(begins[own]) * size_of(type),
        parts[own], type);
    run(o);
    expect(
        out, total,
        [&](int64_t i) {
          int r = size_ - 1;
          while (begins[static_cast<size_t>(r)] > i) r--;
          return from(r, i - begins[static_cast<size_t>(r)]);
        },
        "all_gather of unequal parts");
  }

  void barrier() {
    comm::Operation o = operation(Op::kBarrier, DataType::kFloat32, 0);
    run(o);
    checks_++;
  }

  comm::Transfer transfer(const Data& d, bool is_send, int peer) {
    comm::Transfer t;
    t.is_send = is_send;
    t.peer = peer;
    t.tag = 65535;
    t.data = static_cast<std::byte*>(d.memory.get());
    t.bytes = d.buffer().bytes();
    t.descriptor.op = is_send ? comm::kSendOp : comm::kReceiveOp;
    t.descriptor.count = d.count;
    t.descriptor.root = t.tag;
    t.fingerprint = t.descriptor.fingerprint();
    return t;
  }

  comm::Backend& backend_;
  int rank_;
  int size_;
  Arena& arena_;
  std::vector<DataType> types_;
  uint64_t number_ = 0;
  int checks_ = 0;
};

}  // namespace yoke::test
