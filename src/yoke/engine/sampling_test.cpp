#include "yoke/engine/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "yoke/base/error.h"

namespace yoke::engine {
namespace {

// ln of 0.1, 0.4, 0.2, 0.3.
const std::vector<float> kLogits = {std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};

std::vector<double> shares(const SamplingOptions& options, int draws = 40000) {
  Sampler sampler(options, 3);
  std::vector<double> counted(kLogits.size());
  for (int i = 0; i < draws; ++i) counted[static_cast<size_t>(sampler.pick(kLogits))] += 1.0 / draws;
  return counted;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& wanted) {
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 0.015) << i;
}

TEST(Sampling, TakesTheFirstOfTheMostProbableAtTemperatureZero) {
  Sampler sampler({.temperature = 0}, 1);
  EXPECT_EQ(sampler.pick(kLogits), 1);
  EXPECT_EQ(sampler.pick(std::vector<float>{1, 5, 5}), 1);
}

TEST(Sampling, DrawsByProbability) {
  expect_near(shares({.temperature = 1}), {0.1, 0.4, 0.2, 0.3});
}

TEST(Sampling, ALowTemperatureSharpens) {
  const double sum = 0.01 + 0.16 + 0.04 + 0.09;
  expect_near(shares({.temperature = 0.5}), {0.01 / sum, 0.16 / sum, 0.04 / sum, 0.09 / sum});
}

TEST(Sampling, TopKKeepsTheMostProbable) {
  expect_near(shares({.temperature = 1, .top_k = 2}), {0, 4.0 / 7, 0, 3.0 / 7});
  expect_near(shares({.temperature = 1, .top_k = 99}), {0.1, 0.4, 0.2, 0.3});
}

TEST(Sampling, TopPKeepsTheFewestThatReachIt) {
  expect_near(shares({.temperature = 1, .top_p = 0.65}), {0, 4.0 / 7, 0, 3.0 / 7});
  expect_near(shares({.temperature = 1, .top_p = 0.0}), {0, 1, 0, 0});
  // Of what top_k left: 4/7 reaches one half.
  expect_near(shares({.temperature = 1, .top_k = 2, .top_p = 0.5}), {0, 1, 0, 0});
}

TEST(Sampling, IsReproducible) {
  Sampler one({.temperature = 1}, 5), same({.temperature = 1}, 5);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(one.pick(kLogits), same.pick(kLogits));
}

TEST(Sampling, RefusesLogitsThatAreNotFinite) {
  Sampler sampler({}, 1);
  EXPECT_THROW(sampler.pick(std::vector<float>{1, std::numeric_limits<float>::quiet_NaN()}), ConfigError);
  EXPECT_THROW(sampler.pick(std::vector<float>{1, std::numeric_limits<float>::infinity()}), ConfigError);
}

}  // namespace
}  // namespace yoke::engine
