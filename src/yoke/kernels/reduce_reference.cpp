#include <cstring>
#include <type_traits>

#include "yoke/kernels/reduce.h"
#include "yoke/kernels/reduce_half.h"

namespace yoke::kernels::reference {
namespace {

// Conversion between stored values and those to compute with.
template <class Stored>
struct Plain {
  using Computed = Stored;
  static Computed load(Stored value) { return value; }
  static Stored store(Computed value) { return value; }
};
struct Fp16 {
  using Computed = float;
  static float load(uint16_t bits) { return float_of_fp16(bits); }
  static uint16_t store(float value) { return fp16_of_float(value); }
};
struct Bf16 {
  using Computed = float;
  static float load(uint16_t bits) { return float_of_bf16(bits); }
  static uint16_t store(float value) { return bf16_of_float(value); }
};

template <class T>
T combine(T a, T b, ReduceOp op) {
  if (op == ReduceOp::kMax) return a > b || a != a ? a : b;
  if (op == ReduceOp::kMin) return a < b || a != a ? a : b;
  if constexpr (std::is_floating_point_v<T>) {
    return op == ReduceOp::kProd ? a * b : a + b;
  } else {
    auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);  // wraps around
    return static_cast<T>(op == ReduceOp::kProd ? x * y : x + y);
  }
}

template <class Stored, class Convert>
void reduce_as(std::span<void* const> outs, std::span<const void* const> sources, size_t count, ReduceOp op) {
  using T = typename Convert::Computed;
  auto load = [&](size_t s, size_t i) {
    Stored stored;
    std::memcpy(&stored, static_cast<const char*>(sources[s]) + i * sizeof(Stored), sizeof(Stored));
    return Convert::load(stored);
  };
  for (size_t i = 0; i < count; ++i) {
    T value = load(0, i);
    for (size_t s = 1; s < sources.size(); ++s) value = combine<T>(value, load(s, i), op);
    if (op == ReduceOp::kMean) value = static_cast<T>(value / static_cast<T>(sources.size()));
    Stored stored = Convert::store(value);
    for (void* out : outs) std::memcpy(static_cast<char*>(out) + i * sizeof(Stored), &stored, sizeof(Stored));
  }
}

}  // namespace

void reduce(std::span<void* const> outs, std::span<const void* const> sources, size_t count, DataType type,
            ReduceOp op) {
  switch (type) {
    case DataType::kFloat32:
      return reduce_as<float, Plain<float>>(outs, sources, count, op);
    case DataType::kFloat64:
      return reduce_as<double, Plain<double>>(outs, sources, count, op);
    case DataType::kFloat16:
      return reduce_as<uint16_t, Fp16>(outs, sources, count, op);
    case DataType::kBFloat16:
      return reduce_as<uint16_t, Bf16>(outs, sources, count, op);
    case DataType::kInt8:
      return reduce_as<int8_t, Plain<int8_t>>(outs, sources, count, op);
    case DataType::kUint8:
      return reduce_as<uint8_t, Plain<uint8_t>>(outs, sources, count, op);
    case DataType::kInt16:
      return reduce_as<int16_t, Plain<int16_t>>(outs, sources, count, op);
    case DataType::kInt32:
      return reduce_as<int32_t, Plain<int32_t>>(outs, sources, count, op);
    case DataType::kInt64:
      return reduce_as<int64_t, Plain<int64_t>>(outs, sources, count, op);
  }
}

}  // namespace yoke::kernels::reference
