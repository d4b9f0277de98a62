#include "yoke/ps/sandblaster/vector_shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "yoke/base/error.h"
#include "yoke/kernels/lbfgs.h"

namespace yoke::ps::sandblaster {
namespace {

using kernels::LbfgsVector;

constexpr int64_t kTensors[] = {5, 9};

Sharding two_servers(DataType type) {
  return Sharding(kTensors, {2, static_cast<int64_t>(size_of(type)), 32, 1});
}

// Values of a vector in all ranges of a shard.
template <class T>
std::vector<T> values_of(VectorShard& shard, int64_t vector, const Sharding& sharding) {
  std::vector<T> all;
  for (size_t i = 0; i < sharding.ranges().size(); ++i) {
    if (!shard.has(static_cast<int64_t>(i))) continue;
    auto bytes = shard.slice(vector, static_cast<int64_t>(i));
    const auto* values = reinterpret_cast<const T*>(bytes.data());
    all.insert(all.end(), values, values + bytes.size() / sizeof(T));
  }
  return all;
}

template <class T>
void fill(VectorShard& shard, int64_t vector, const Sharding& sharding, T first) {
  for (size_t i = 0; i < sharding.ranges().size(); ++i) {
    if (!shard.has(static_cast<int64_t>(i))) continue;
    auto bytes = shard.slice(vector, static_cast<int64_t>(i));
    auto* values = reinterpret_cast<T*>(bytes.data());
    std::iota(values, values + bytes.size() / sizeof(T), first + static_cast<T>(sharding.ranges()[i].begin));
  }
}

TEST(VectorShard, PartsOfServersCombineToTheWhole) {
  const Sharding sharding = two_servers(DataType::kFloat64);
  VectorShard first(sharding, 0, DataType::kFloat64, 4), second(sharding, 1, DataType::kFloat64, 4);
  auto sum = [&](const CommandHead& command) { return first.run(command) + second.run(command); };
  for (VectorShard* shard : {&first, &second}) {
    fill<double>(*shard, 0, sharding, 0);
    fill<double>(*shard, 1, sharding, -3);
  }
  double expected = 0;
  for (int i = 0; i < 14; ++i) expected += i * (i - 3.0);
  EXPECT_EQ(sum({Operation::kDot, 0, 1}), expected);
  EXPECT_EQ(sum({Operation::kSumAbs, 1}), 6 + 55);
  EXPECT_EQ(std::max(first.run({Operation::kMaxAbs, 1}), second.run({Operation::kMaxAbs, 1})), 10);
  sum({Operation::kScale, 2, 0, 2});
  sum({Operation::kAdd, 2, 1, 0.5});
  for (VectorShard* shard : {&first, &second}) {
    const auto w = values_of<double>(*shard, 0, sharding), v = values_of<double>(*shard, 2, sharding);
    for (size_t i = 0; i < v.size(); ++i) EXPECT_EQ(v[i], 2 * w[i] + 0.5 * (w[i] - 3));
  }
}

TEST(VectorShard, FloatsAreSummedInDoubles) {
  const Sharding sharding(std::vector<int64_t>{3}, {1, 4, 1024, 1});
  VectorShard shard(sharding, 0, DataType::kFloat32, 2);
  auto* values = reinterpret_cast<float*>(shard.slice(0, 0).data());
  values[0] = 3e4F;
  values[1] = values[2] = 1;
  EXPECT_EQ(shard.run({Operation::kDot, 0, 0}), 9e8 + 2);
}

std::span<const std::byte> bytes_of(const std::vector<double>& values) {
  return std::as_bytes(std::span(values));
}

TEST(VectorShard, TheSumOfPortionsHasTheSameBitsInEveryOrder) {
  const Sharding sharding(std::vector<int64_t>{2}, {1, 8, 1024, 1});
  std::vector<std::vector<double>> gradients;
  for (int i = 0; i < 40; ++i) gradients.push_back({std::sin(i) * std::pow(10, i % 17), 1.0 / (1 + i)});
  std::vector<double> expected;
  for (int order = 0; order < 8; ++order) {
    VectorShard shard(sharding, 0, DataType::kFloat64, 2);
    shard.run({Operation::kBegin, 1, 40});
    for (int64_t i = 0; i < 40; ++i) {
      const int64_t portion = order % 2 == 0 ? (i * 7 + order) % 40 : 39 - (i + order) % 40;
      EXPECT_TRUE(shard.add_portion({0, 1, portion}, bytes_of(gradients[static_cast<size_t>(portion)])));
    }
    shard.run({Operation::kEnd});
    const auto sum = values_of<double>(shard, LbfgsVector::kGradient, sharding);
    if (expected.empty()) expected = sum;
    EXPECT_EQ(sum, expected) << order;
  }
}

TEST(VectorShard, APortionIsAddedOnce) {
  const Sharding sharding(std::vector<int64_t>{2}, {1, 8, 1024, 1});
  VectorShard shard(sharding, 0, DataType::kFloat64, 2);
  const std::vector<double> ones = {1, 1};
  EXPECT_FALSE(shard.add_portion({0, 0, 0}, bytes_of(ones))) << "before the first evaluation";
  shard.run({Operation::kBegin, 3, 2});
  EXPECT_TRUE(shard.add_portion({0, 3, 1}, bytes_of(ones)));
  EXPECT_FALSE(shard.add_portion({0, 3, 1}, bytes_of(ones)));
  EXPECT_FALSE(shard.add_portion({0, 2, 0}, bytes_of(ones))) << "of an earlier evaluation";
  EXPECT_FALSE(shard.add_portion({0, 4, 0}, bytes_of(ones))) << "of a later one";
  EXPECT_TRUE(shard.add_portion({0, 3, 0}, bytes_of(ones)));
  shard.run({Operation::kEnd});
  EXPECT_FALSE(shard.add_portion({0, 3, 0}, bytes_of(ones))) << "after its end";
  EXPECT_EQ(values_of<double>(shard, LbfgsVector::kGradient, sharding), (std::vector<double>{2, 2}));
}

TEST(VectorShard, WhatIsNotFiniteStaysSo) {
  const Sharding sharding(std::vector<int64_t>{2}, {1, 8, 1024, 1});
  VectorShard shard(sharding, 0, DataType::kFloat64, 2);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  shard.run({Operation::kBegin, 1, 2});
  shard.add_portion({0, 1, 0}, bytes_of({kInfinity, 1}));
  shard.add_portion({0, 1, 1}, bytes_of({1, std::nan("")}));
  shard.run({Operation::kEnd});
  const auto sum = values_of<double>(shard, LbfgsVector::kGradient, sharding);
  EXPECT_EQ(sum[0], kInfinity);
  EXPECT_TRUE(std::isnan(sum[1]));
  EXPECT_TRUE(std::isnan(shard.run({Operation::kMaxAbs, LbfgsVector::kGradient})));
}

TEST(VectorShard, ArgumentsOutOfRangeAreRefused) {
  const Sharding sharding = two_servers(DataType::kFloat64);
  VectorShard shard(sharding, 0, DataType::kFloat64, 4);
  EXPECT_THROW(shard.run({Operation::kDot, 0, 4}), CommError);
  EXPECT_THROW(shard.run({Operation::kScale, -1, 0, 1}), CommError);
  EXPECT_THROW(shard.run({static_cast<Operation>(77), 0, 0}), CommError);
  EXPECT_THROW(shard.run({Operation::kBegin, 1, 0}), CommError);
  EXPECT_THROW(shard.run({Operation::kBegin, 1, kMostPortions + 1}), CommError);
  shard.run({Operation::kBegin, 1, 2});
  EXPECT_THROW(shard.run({Operation::kBegin, 1, 2}), CommError) << "the same evaluation again";
  const std::vector<double> few = {1};
  EXPECT_THROW(shard.add_portion({0, 1, 0}, bytes_of(few)), CommError);
  EXPECT_THROW(shard.add_portion({99, 1, 0}, bytes_of(few)), CommError);
}

}  // namespace
}  // namespace yoke::ps::sandblaster
