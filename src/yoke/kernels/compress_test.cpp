#include "yoke/kernels/compress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "yoke/base/random.h"

namespace yoke::kernels {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

template <class T>
std::vector<T> normal_numbers(int64_t count, uint64_t seed = 1) {
  Random random(seed);
  std::vector<T> x(static_cast<size_t>(count));
  for (T& value : x) value = static_cast<T>(random.normal());
  return x;
}

template <class T>
class Compress : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Compress, Types);

TYPED_TEST(Compress, SignsComeBackWithTheMeanMagnitudeOfTheirChunk) {
  for (int64_t count : {1, 7, 8, 1023, 1024, 1025, 3000}) {
    auto x = normal_numbers<TypeParam>(count);
    auto chunks = static_cast<size_t>(chunks_of(count, kSignChunk));
    std::vector<float> scales(chunks);
    std::vector<uint8_t> bits(static_cast<size_t>((count + 7) / 8));
    pack_signs(x.data(), count, scales.data(), bits.data());
    std::vector<TypeParam> out(x.size(), TypeParam{10});
    add_signs(out.data(), bits.data(), scales.data(), count, 2);
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
      size_t begin = chunk * kSignChunk, end = std::min(begin + kSignChunk, x.size());
      double sum = 0;
      for (size_t i = begin; i < end; ++i) sum += std::abs(static_cast<double>(x[i]));
      EXPECT_NEAR(scales[chunk], sum / static_cast<double>(end - begin), 1e-5);
      for (size_t i = begin; i < end; ++i)
        ASSERT_NEAR(static_cast<double>(out[i]), 10 + (x[i] < 0 ? -2 : 2) * scales[chunk], 1e-5) << i;
    }
  }
}

TYPED_TEST(Compress, QuantaAreWithinHalfAStep) {
  for (int64_t count : {1, 15, 511, 512, 513, 2000}) {
    auto x = normal_numbers<TypeParam>(count);
    std::vector<float> scales(static_cast<size_t>(chunks_of(count, kQuantumChunk)));
    std::vector<int8_t> quanta(x.size());
    quantise(x.data(), count, scales.data(), quanta.data());
    std::vector<TypeParam> out(x.size());
    add_quanta(out.data(), quanta.data(), scales.data(), count, 1);
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_LE(std::abs(out[i] - x[i]), 0.5001f * scales[i / kQuantumChunk]) << i << " of " << count;
    EXPECT_EQ(*std::max_element(quanta.begin(), quanta.end(),
                                [](int8_t a, int8_t b) { return std::abs(a) < std::abs(b); }) %
                  127,
              0);
  }
}

TYPED_TEST(Compress, OnlyTheChunkWithANumberThatIsNotFiniteIsSpoilt) {
  for (double bad : {kInfinite, -kInfinite, std::nan("")}) {
    auto x = normal_numbers<TypeParam>(3000);
    x[1700] = static_cast<TypeParam>(bad);
    std::vector<float> sign_scales(3), scales(6);
    std::vector<uint8_t> bits(375);
    std::vector<int8_t> quanta(3000);
    pack_signs(x.data(), 3000, sign_scales.data(), bits.data());
    quantise(x.data(), 3000, scales.data(), quanta.data());
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(std::isnan(sign_scales[i]), i == 1);
    for (size_t i = 0; i < 6; ++i) EXPECT_EQ(std::isnan(scales[i]), i == 3);
    std::vector<TypeParam> out(3000);
    add_quanta(out.data(), quanta.data(), scales.data(), 3000, 1);
    EXPECT_TRUE(std::isnan(out[1536]) && std::isnan(out[2047]) && std::isfinite(out[2048]));
  }
}

TYPED_TEST(Compress, ZerosAndTinyNumbersAreZero) {
  std::vector<TypeParam> x(600);
  x[5] = static_cast<TypeParam>(1e-35);
  std::vector<float> scales(2, 7.f);
  std::vector<int8_t> quanta(600, 3);
  quantise(x.data(), 600, scales.data(), quanta.data());
  EXPECT_EQ(scales, std::vector<float>(2, 0.f));
  EXPECT_EQ(quanta, std::vector<int8_t>(600, 0));
}

TYPED_TEST(Compress, LargestMagnitudesAreThoseOfASort) {
  for (int64_t count : {1, 5, 33, 1000, 5000})
    for (int64_t kept : {int64_t{1}, count / 10, count / 2, count - 1, count}) {
      if (kept < 1) continue;
      auto x = normal_numbers<TypeParam>(count);
      for (size_t i = 0; i < x.size(); i += 3)
        x[i] = static_cast<TypeParam>(i % 2 ? -0.5 : 0.5);  // many equal
      std::vector<int32_t> order(x.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return std::abs(x[static_cast<size_t>(a)]) > std::abs(x[static_cast<size_t>(b)]);
      });
      order.resize(static_cast<size_t>(kept));
      std::sort(order.begin(), order.end());
      std::vector<int32_t> places(static_cast<size_t>(kept));
      largest_magnitudes(x.data(), count, kept, places.data());
      EXPECT_EQ(places, order) << kept << " of " << count;
    }
}

TYPED_TEST(Compress, NaNAndInfiniteAreTheLargest) {
  auto x = normal_numbers<TypeParam>(1000);
  x[17] = static_cast<TypeParam>(-kInfinite);
  x[900] = std::numeric_limits<TypeParam>::quiet_NaN();
  int32_t places[2];
  largest_magnitudes(x.data(), 1000, 1, places);
  EXPECT_EQ(places[0], 900);
  largest_magnitudes(x.data(), 1000, 2, places);
  EXPECT_EQ(places[0], 17);
}

TYPED_TEST(Compress, LowRankProductIsTheProduct) {
  constexpr int64_t kRows = 5, kColumns = 700, kRank = 3;
  auto left = normal_numbers<TypeParam>(kRank * kRows, 2);
  auto right = normal_numbers<TypeParam>(kRank * kColumns, 3);
  std::vector<TypeParam> out(kRows * kColumns);
  low_rank_product(left.data(), right.data(), out.data(), kRows, kColumns, kRank);
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t column = 0; column < kColumns; ++column) {
      double sum = 0;
      for (int64_t k = 0; k < kRank; ++k)
        sum += static_cast<double>(left[static_cast<size_t>(k * kRows + row)]) *
               static_cast<double>(right[static_cast<size_t>(k * kColumns + column)]);
      ASSERT_NEAR(static_cast<double>(out[static_cast<size_t>(row * kColumns + column)]), sum, 1e-5);
    }
}

}  // namespace
}  // namespace yoke::kernels
