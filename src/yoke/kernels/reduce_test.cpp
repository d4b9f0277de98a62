#include "yoke/kernels/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/kernels/reduce_half.h"

namespace yoke::kernels {
namespace {

constexpr DataType kTypes[] = {DataType::kFloat32,  DataType::kFloat64, DataType::kFloat16,
                               DataType::kBFloat16, DataType::kInt8,    DataType::kUint8,
                               DataType::kInt16,    DataType::kInt32,   DataType::kInt64};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax, ReduceOp::kMin,
                             ReduceOp::kProd};

double number(uint32_t& state) {
  state = state * 1664525u + 1013904223u;
  return static_cast<double>(state >> 8) / (1 << 24);
}

// Random numbers of the type (floats of both signs; all bits for integers), some of them NaN and infinite.
std::vector<std::byte> random_data(DataType type, size_t count, uint32_t seed) {
  std::vector<std::byte> data(count * size_of(type));
  uint32_t state = seed;
  for (size_t i = 0; i < count; ++i) {
    double value = 4 * number(state) - 2;
    if (number(state) < 0.01) value = std::numeric_limits<double>::quiet_NaN();
    if (number(state) < 0.01) value = std::numeric_limits<double>::infinity();
    std::byte* at = data.data() + i * size_of(type);
    auto f = static_cast<float>(value);
    uint16_t half = type == DataType::kFloat16 ? fp16_of_float(f) : bf16_of_float(f);
    auto bits = static_cast<uint64_t>(number(state) * 0x1p62);
    bits ^= static_cast<uint64_t>(number(state) * 0x1p24);
    if (type == DataType::kFloat32)
      std::memcpy(at, &f, 4);
    else if (type == DataType::kFloat64)
      std::memcpy(at, &value, 8);
    else if (type == DataType::kFloat16 || type == DataType::kBFloat16)
      std::memcpy(at, &half, 2);
    else
      std::memcpy(at, &bits, size_of(type));
  }
  return data;
}

// The bits, with one bit pattern for all NaN.
std::vector<std::byte> without_nan(DataType type, const std::byte* from, size_t count) {
  std::vector<std::byte> data(from, from + count * size_of(type));
  for (size_t i = 0; i < count; ++i) {
    std::byte* at = data.data() + i * size_of(type);
    float f = 0;
    double d = 0;
    uint16_t half = 0;
    if (type == DataType::kFloat32) std::memcpy(&f, at, 4);
    if (type == DataType::kFloat64) std::memcpy(&d, at, 8);
    if (type == DataType::kFloat16 || type == DataType::kBFloat16) std::memcpy(&half, at, 2);
    if (type == DataType::kFloat16) f = float_of_fp16(half);
    if (type == DataType::kBFloat16) f = float_of_bf16(half);
    if (std::isnan(f) || std::isnan(d)) std::memset(at, 0xff, size_of(type));
  }
  return data;
}

std::string describe(DataType type, ReduceOp op, size_t sources, size_t outs, size_t count) {
  return std::string(to_string(op)) + " of " + std::to_string(sources) + " x " + std::to_string(count) + " " +
         to_string(type) + " into " + std::to_string(outs);
}

void expect_like_reference(DataType type, ReduceOp op, size_t sources, size_t outs, size_t count,
                           bool in_place, size_t offset) {
  std::vector<std::vector<std::byte>> data, results(outs);
  std::vector<const void*> from;
  std::vector<void*> to;
  for (size_t s = 0; s < sources; ++s) {
    data.push_back(random_data(type, count, static_cast<uint32_t>(s + 1)));
    data.back().insert(data.back().begin(), offset, std::byte{0});
    from.push_back(data.back().data() + offset);
  }
  std::vector<std::byte> expected(count * size_of(type) + 1);
  void* into = expected.data();
  reference::reduce({&into, 1}, from, count, type, op);
  for (size_t o = 0; o < outs; ++o) {
    results[o].assign(count * size_of(type) + offset, std::byte{0x77});
    bool same = in_place && o < sources;
    to.push_back(same ? data[o].data() + offset : results[o].data() + offset);
  }
  reduce(to, from, count, type, op);
  for (size_t o = 0; o < outs; ++o) {
    EXPECT_EQ(without_nan(type, static_cast<std::byte*>(to[o]), count),
              without_nan(type, expected.data(), count))
        << describe(type, op, sources, outs, count) << (in_place ? " in place" : "") << " offset " << offset;
  }
}

TEST(Reduce, EqualsItsReferenceForAllTypesAndOperations) {
  for (DataType type : kTypes) {
    for (ReduceOp op : kOps) {
      for (size_t sources : {1u, 2u, 3u, 5u}) {
        for (size_t outs : {1u, 2u, 4u}) {
          for (size_t count : {0u, 1u, 15u, 64u, 257u, 3001u}) {
            expect_like_reference(type, op, sources, outs, count, false, 0);
            expect_like_reference(type, op, sources, outs, count, true, 0);
          }
        }
      }
    }
  }
}

TEST(Reduce, TakesUnalignedMemory) {
  for (DataType type : kTypes)
    for (size_t offset : {1u, 2u, 4u, 7u})
      for (ReduceOp op : kOps) expect_like_reference(type, op, 2, 2, 1111, true, offset);
}

TEST(Reduce, TakesSixtyFourSourcesAndNotMore) {
  expect_like_reference(DataType::kFloat32, ReduceOp::kMean, 64, 64, 333, true, 0);
  std::vector<float> x(1);
  std::vector<void*> outs(65, x.data());
  std::vector<const void*> sources(65, x.data());
  EXPECT_THROW(reduce(outs, std::span(sources).first(1), 1, DataType::kFloat32, ReduceOp::kSum), Error);
  EXPECT_THROW(reduce(std::span(outs).first(1), sources, 1, DataType::kFloat32, ReduceOp::kSum), Error);
  EXPECT_THROW(reduce({}, std::span(sources).first(1), 1, DataType::kFloat32, ReduceOp::kSum), Error);
}

TEST(Reduce, LetsNanThroughMaxAndMinFromEverySide) {
  const float nan = std::nanf("");
  for (ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin}) {
    std::vector<float> a(40, 1.0f), b(40, 2.0f), c(40, 0.0f), out(40);
    a[0] = b[17] = c[39] = nan;
    std::vector<const void*> sources = {a.data(), b.data(), c.data()};
    void* into = out.data();
    reduce({&into, 1}, sources, 40, DataType::kFloat32, op);
    for (size_t i = 0; i < 40; ++i) EXPECT_EQ(std::isnan(out[i]), i == 0 || i == 17 || i == 39) << i;
  }
}

TEST(Reduce, RoundsHalfPrecisionOnceAfterSummingInSingle) {
  // 2048 + 1 + 1 is 2050 in fp16; rounded after each addition it would stay 2048.
  std::vector<uint16_t> large(20, fp16_of_float(2048)), one(20, fp16_of_float(1)), out(20);
  std::vector<const void*> sources = {large.data(), one.data(), one.data()};
  void* into = out.data();
  reduce({&into, 1}, sources, 20, DataType::kFloat16, ReduceOp::kSum);
  for (uint16_t bits : out) EXPECT_EQ(float_of_fp16(bits), 2050.0f);
}

TEST(Accumulate, AddsForMeanAndDivideRoundsOnce) {
  for (DataType type : kTypes) {
    size_t count = 1027;
    std::vector<std::byte> a = random_data(type, count, 1), b = random_data(type, count, 2);
    std::vector<std::byte> expected(a.size());
    void* into = expected.data();
    std::vector<const void*> sources = {a.data(), b.data()};
    reference::reduce({&into, 1}, sources, count, type, ReduceOp::kSum);
    accumulate(a.data(), b.data(), count, type, ReduceOp::kMean);
    EXPECT_EQ(without_nan(type, a.data(), count), without_nan(type, expected.data(), count))
        << to_string(type);
  }
  std::vector<int8_t> small = {-7, 7, -128, 127};
  divide(small.data(), 4, DataType::kInt8, 2);
  EXPECT_EQ(small, (std::vector<int8_t>{-3, 3, -64, 63}));
  std::vector<uint16_t> half(30, bf16_of_float(3.0f));
  divide(half.data(), 30, DataType::kBFloat16, 7);
  for (uint16_t bits : half) EXPECT_EQ(bits, bf16_of_float(3.0f / 7.0f));
  EXPECT_THROW(divide(small.data(), 4, DataType::kInt8, 0), Error);
}

TEST(HalfPrecision, ConvertsEveryValueBothWaysLikeTheScalarCode) {
  std::vector<uint16_t> all(65536), back(65536);
  std::vector<float> wide(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  widen_fp16(wide.data(), all.data(), all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::isnan(wide[i])) continue;
    ASSERT_EQ(wide[i], float_of_fp16(all[i])) << i;
    ASSERT_EQ(fp16_of_float(wide[i]), all[i]) << i;
  }
  // Every value and its neighbours half a step away, where rounding decides.
  std::vector<float> between(65536);
  for (size_t i = 0; i < all.size(); ++i) between[i] = wide[i] * (1.0f + (i % 3 == 0 ? 0x1p-11f : 0x1p-12f));
  narrow_fp16(back.data(), between.data(), back.size());
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::isnan(between[i])) {
      ASSERT_TRUE(std::isnan(float_of_fp16(back[i])));
    } else {
      ASSERT_EQ(back[i], fp16_of_float(between[i])) << between[i];
    }
  }
  widen_bf16(wide.data(), all.data(), all.size());
  narrow_bf16(back.data(), wide.data(), all.size());
  for (size_t i = 0; i < all.size(); ++i) ASSERT_TRUE(std::isnan(wide[i]) || back[i] == all[i]) << i;
}

}  // namespace
}  // namespace yoke::kernels
