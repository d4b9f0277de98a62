#include "yoke/kernels/reduce.h"

#include <array>
#include <cstring>
#include <type_traits>

#include "yoke/base/error.h"
#include "yoke/kernels/reduce_half.h"
#include "yoke/kernels/simd.h"

namespace yoke::kernels {
namespace {

constexpr size_t kVectorBytes = kLanes * 4;
constexpr size_t kUnroll = 4;

template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(kVectorBytes)));
  typedef T loose __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));
};

struct Job {
  void* const* outs;
  size_t out_count;
  const void* const* sources;
  size_t source_count;
  size_t count;
  DataType type;
  ReduceOp op;
};

// Sums and products of integers wrap around, which is defined for unsigned numbers only.
template <class T>
struct Wrapping {
  using type = std::make_unsigned_t<T>;
};
template <>
struct Wrapping<float> {
  using type = float;
};
template <>
struct Wrapping<double> {
  using type = double;
};

struct Sum {
  static constexpr bool kWraps = true;
  static constexpr bool kDivides = false;
  template <class V>
  static YOKE_INLINE V vectors(const V& a, const V& b) {
    return a + b;
  }
  template <class T>
  static YOKE_INLINE T numbers(T a, T b) {
    return static_cast<T>(a + b);
  }
};
struct Mean : Sum {
  static constexpr bool kDivides = true;
};
struct Prod : Sum {
  template <class V>
  static YOKE_INLINE V vectors(const V& a, const V& b) {
    return a * b;
  }
  template <class T>
  static YOKE_INLINE T numbers(T a, T b) {
    // Small numbers multiply as int, where 65535 * 65535 would overflow.
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    else
      return a * b;
  }
};
// If neither value is larger, the second; NaN wins on either side.
struct Max : Sum {
  static constexpr bool kWraps = false;
  template <class V>
  static YOKE_INLINE V vectors(const V& a, const V& b) {
    auto first = (a > b) | (a != a);
    return (V)(((decltype(first))a & first) | ((decltype(first))b & ~first));
  }
  template <class T>
  static YOKE_INLINE T numbers(T a, T b) {
    return a > b || a != a ? a : b;
  }
};
struct Min : Max {
  template <class V>
  static YOKE_INLINE V vectors(const V& a, const V& b) {
    auto first = (a < b) | (a != a);
    return (V)(((decltype(first))a & first) | ((decltype(first))b & ~first));
  }
  template <class T>
  static YOKE_INLINE T numbers(T a, T b) {
    return a < b || a != a ? a : b;
  }
};

template <class T>
YOKE_INLINE T number_at(const void* from, size_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(from) + i * sizeof(T), sizeof(T));
  return value;
}
template <class T>
YOKE_INLINE void put_number(void* to, size_t i, T value) {
  std::memcpy(static_cast<char*>(to) + i * sizeof(T), &value, sizeof(T));
}

template <class T, class Op>
YOKE_INLINE void combine_numbers(const Job& job, size_t i) {
  for (; i < job.count; ++i) {
    T value = number_at<T>(job.sources[0], i);
    for (size_t s = 1; s < job.source_count; ++s) value = Op::numbers(value, number_at<T>(job.sources[s], i));
    if constexpr (Op::kDivides) value /= static_cast<T>(job.source_count);
    for (size_t o = 0; o < job.out_count; ++o) put_number(job.outs[o], i, value);
  }
}

// kSources, kOuts: their numbers where known, which lets the pointers stay in registers; 0: any.
template <class T, class Op, size_t kSources, size_t kOuts>
YOKE_INLINE void combine_vectors(const Job& job) {
  using V = typename VectorOf<T>::type;
  using Loose = typename VectorOf<T>::loose;
  const size_t sources = kSources ? kSources : job.source_count;
  const size_t outs = kOuts ? kOuts : job.out_count;
  const char* from[64];
  char* to[64];
  for (size_t s = 0; s < sources; ++s) from[s] = static_cast<const char*>(job.sources[s]);
  for (size_t o = 0; o < outs; ++o) to[o] = static_cast<char*>(job.outs[o]);
  constexpr size_t kStep = kUnroll * kVectorBytes;
  const size_t bytes = job.count * sizeof(T);
  size_t at = 0;
  for (; at + kStep <= bytes; at += kStep) {
    V value[kUnroll];
    for (size_t u = 0; u < kUnroll; ++u)
      value[u] = *reinterpret_cast<const Loose*>(from[0] + at + u * kVectorBytes);
    for (size_t s = 1; s < sources; ++s) {
      for (size_t u = 0; u < kUnroll; ++u) {
        V other = *reinterpret_cast<const Loose*>(from[s] + at + u * kVectorBytes);
        value[u] = Op::template vectors<V>(value[u], other);
      }
    }
    if constexpr (Op::kDivides) {
      for (size_t u = 0; u < kUnroll; ++u) value[u] = value[u] / static_cast<T>(sources);
    }
    for (size_t o = 0; o < outs; ++o) {
      for (size_t u = 0; u < kUnroll; ++u)
        *reinterpret_cast<Loose*>(to[o] + at + u * kVectorBytes) = value[u];
    }
  }
  combine_numbers<T, Op>(job, at / sizeof(T));
}

template <class Signed, class Op>
YOKE_INLINE void combine_op(const Job& job) {
  using T = std::conditional_t<Op::kWraps, typename Wrapping<Signed>::type, Signed>;
  if constexpr (std::is_same_v<T, float>) {  // two sources: the common case in training
    if (job.source_count == 2 && job.out_count == 2) return combine_vectors<T, Op, 2, 2>(job);
    if (job.source_count == 2 && job.out_count == 1) return combine_vectors<T, Op, 2, 1>(job);
  }
  combine_vectors<T, Op, 0, 0>(job);
}

template <class T>
YOKE_INLINE void combine_type(const Job& job) {
  switch (job.op) {
    case ReduceOp::kMean:  // of integers is divided afterwards: vectors of them do not divide
      if constexpr (std::is_floating_point_v<T>) return combine_op<T, Mean>(job);
      [[fallthrough]];
    case ReduceOp::kSum:
      return combine_op<T, Sum>(job);
    case ReduceOp::kMax:
      return combine_op<T, Max>(job);
    case ReduceOp::kMin:
      return combine_op<T, Min>(job);
    case ReduceOp::kProd:
      return combine_op<T, Prod>(job);
  }
}

YOKE_INLINE void combine_fp32_body(const Job& job) {
  combine_type<float>(job);
}
YOKE_INLINE void combine_fp64_body(const Job& job) {
  combine_type<double>(job);
}
YOKE_INLINE void combine_int8_body(const Job& job) {
  combine_type<int8_t>(job);
}
YOKE_INLINE void combine_uint8_body(const Job& job) {
  combine_type<uint8_t>(job);
}
YOKE_INLINE void combine_int16_body(const Job& job) {
  combine_type<int16_t>(job);
}
YOKE_INLINE void combine_int32_body(const Job& job) {
  combine_type<int32_t>(job);
}
YOKE_INLINE void combine_int64_body(const Job& job) {
  combine_type<int64_t>(job);
}
YOKE_KERNEL(combine_fp32, (const Job& job), (job))
YOKE_KERNEL(combine_fp64, (const Job& job), (job))
YOKE_KERNEL(combine_int8, (const Job& job), (job))
YOKE_KERNEL(combine_uint8, (const Job& job), (job))
YOKE_KERNEL(combine_int16, (const Job& job), (job))
YOKE_KERNEL(combine_int32, (const Job& job), (job))
YOKE_KERNEL(combine_int64, (const Job& job), (job))

YOKE_INLINE void divide_floats_body(float* data, size_t count, float divisor) {
  for (size_t i = 0; i < count; ++i) data[i] /= divisor;
}
YOKE_KERNEL(divide_floats, (float* data, size_t count, float divisor), (data, count, divisor))

template <class T>
void divide_numbers(void* data, size_t count, int64_t divisor) {
  for (size_t i = 0; i < count; ++i) {
    T value = number_at<T>(data, i);
    if constexpr (std::is_floating_point_v<T>)
      put_number(data, i, static_cast<T>(value / static_cast<T>(divisor)));
    else
      put_number(data, i, static_cast<T>(static_cast<int64_t>(value) / divisor));
  }
}

// Half-precision numbers go through fp32 in blocks that stay in the first-level cache.
constexpr size_t kBlock = 1024;
struct Halves {
  void (*widen)(float*, const void*, size_t);
  void (*narrow)(void*, const float*, size_t);
};

Halves halves_of(DataType type) {
  return type == DataType::kFloat16 ? Halves{widen_fp16, narrow_fp16} : Halves{widen_bf16, narrow_bf16};
}
const void* at(const void* data, size_t element) {
  return static_cast<const char*>(data) + 2 * element;
}
void* at(void* data, size_t element) {
  return static_cast<char*>(data) + 2 * element;
}

void combine_halves(const Job& job) {
  alignas(64) std::array<float, kBlock> sum, next;
  Halves convert = halves_of(job.type);
  void* into = sum.data();
  std::array<const void*, 2> pair = {sum.data(), next.data()};
  for (size_t begin = 0; begin < job.count; begin += kBlock) {
    size_t count = std::min(kBlock, job.count - begin);
    convert.widen(sum.data(), at(job.sources[0], begin), count);
    for (size_t s = 1; s < job.source_count; ++s) {
      convert.widen(next.data(), at(job.sources[s], begin), count);
      ReduceOp op = job.op == ReduceOp::kMean ? ReduceOp::kSum : job.op;
      combine_fp32({&into, 1, pair.data(), 2, count, DataType::kFloat32, op});
    }
    if (job.op == ReduceOp::kMean) divide_floats(sum.data(), count, static_cast<float>(job.source_count));
    convert.narrow(at(job.outs[0], begin), sum.data(), count);
    for (size_t o = 1; o < job.out_count; ++o)
      std::memcpy(at(job.outs[o], begin), at(job.outs[0], begin), 2 * count);
  }
}

void combine(const Job& job) {
  switch (job.type) {
    case DataType::kFloat32:
      return combine_fp32(job);
    case DataType::kFloat64:
      return combine_fp64(job);
    case DataType::kFloat16:
    case DataType::kBFloat16:
      return combine_halves(job);
    case DataType::kInt8:
      return combine_int8(job);
    case DataType::kUint8:
      return combine_uint8(job);
    case DataType::kInt16:
      return combine_int16(job);
    case DataType::kInt32:
      return combine_int32(job);
    case DataType::kInt64:
      return combine_int64(job);
  }
}

bool is_integer(DataType type) {
  return type >= DataType::kInt8;
}

void divide_halves(void* data, size_t count, DataType type, int64_t divisor) {
  alignas(64) std::array<float, kBlock> block;
  Halves convert = halves_of(type);
  for (size_t begin = 0; begin < count; begin += kBlock) {
    size_t some = std::min(kBlock, count - begin);
    convert.widen(block.data(), at(data, begin), some);
    divide_floats(block.data(), some, static_cast<float>(divisor));
    convert.narrow(at(data, begin), block.data(), some);
  }
}

}  // namespace

void accumulate(void* into, const void* from, size_t count, DataType type, ReduceOp op) {
  std::array<const void*, 2> sources = {into, from};
  combine({&into, 1, sources.data(), 2, count, type, op == ReduceOp::kMean ? ReduceOp::kSum : op});
}

void reduce(std::span<void* const> outs, std::span<const void* const> sources, size_t count, DataType type,
            ReduceOp op) {
  YOKE_CHECK(!outs.empty() && outs.size() <= 64 && !sources.empty() && sources.size() <= 64,
             "reduce of {} sources into {} outs", sources.size(), outs.size());
  combine({outs.data(), outs.size(), sources.data(), sources.size(), count, type, op});
  if (op != ReduceOp::kMean || !is_integer(type)) return;
  for (void* out : outs) divide(out, count, type, static_cast<int64_t>(sources.size()));
}

void divide(void* data, size_t count, DataType type, int64_t divisor) {
  YOKE_CHECK(divisor > 0, "division by {}", divisor);
  switch (type) {
    case DataType::kFloat32:
      return divide_numbers<float>(data, count, divisor);
    case DataType::kFloat64:
      return divide_numbers<double>(data, count, divisor);
    case DataType::kFloat16:
    case DataType::kBFloat16:
      return divide_halves(data, count, type, divisor);
    case DataType::kInt8:
      return divide_numbers<int8_t>(data, count, divisor);
    case DataType::kUint8:
      return divide_numbers<uint8_t>(data, count, divisor);
    case DataType::kInt16:
      return divide_numbers<int16_t>(data, count, divisor);
    case DataType::kInt32:
      return divide_numbers<int32_t>(data, count, divisor);
    case DataType::kInt64:
      return divide_numbers<int64_t>(data, count, divisor);
  }
}

}  // namespace yoke::kernels
