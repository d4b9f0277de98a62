#include "yoke/ps/taken_numbers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace yoke::ps {
namespace {

TEST(TakenNumbers, EachIsTakenOnceInAnyOrder) {
  std::vector<int64_t> numbers(2000);
  std::iota(numbers.begin(), numbers.end(), 1);
  std::shuffle(numbers.begin(), numbers.end(), std::mt19937(7));
  TakenNumbers taken;
  std::set<int64_t> reference;
  for (int64_t number : numbers) {
    EXPECT_EQ(taken.has(number), reference.contains(number)) << number;
    taken.take(number);
    reference.insert(number);
    EXPECT_TRUE(taken.has(number));
  }
  EXPECT_EQ(taken.gaps(), 0u);
  EXPECT_TRUE(taken.has(2000));
  EXPECT_FALSE(taken.has(2001));
}

TEST(TakenNumbers, WhatIsSettledIsNotRemembered) {
  TakenNumbers taken;
  for (int64_t number = 2; number < 4000; number += 2) taken.take(number);
  EXPECT_EQ(taken.gaps(), 1999u);
  taken.settle(3001);
  EXPECT_TRUE(taken.has(1) && taken.has(3000));
  EXPECT_FALSE(taken.has(3001));
  EXPECT_TRUE(taken.has(3002));
  EXPECT_LE(taken.gaps(), 500u);
  taken.settle(10);
  EXPECT_TRUE(taken.has(2999)) << "a number that was overtaken takes nothing back";
}

TEST(TakenNumbers, MemoryIsBounded) {
  TakenNumbers taken;
  for (int64_t number = 2; !taken.full(); number += 2) taken.take(number);
  EXPECT_EQ(taken.gaps(), TakenNumbers::kMostGaps);
}

}  // namespace
}  // namespace yoke::ps
