#include "yoke/metrics/quantiles.h"

#include <gtest/gtest.h>

namespace yoke::metrics {
namespace {

TEST(Quantiles, AgreeWithNumPy) {
  EXPECT_DOUBLE_EQ(median({3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_DOUBLE_EQ(p95({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}), 10.5);
  EXPECT_DOUBLE_EQ(quantile({1, 2}, 0), 1);
  EXPECT_DOUBLE_EQ(quantile({1, 2}, 1), 2);
}

TEST(Quantiles, OfOneValueAreThatValue) {
  EXPECT_DOUBLE_EQ(median({7}), 7);
  EXPECT_DOUBLE_EQ(p95({7}), 7);
}

TEST(Quantiles, PassOverWhatIsNotFinite) {
  EXPECT_DOUBLE_EQ(median({1, std::nan(""), 3, INFINITY}), 2);
  EXPECT_TRUE(std::isnan(median({})));
  EXPECT_TRUE(std::isnan(p95({std::nan("")})));
}

}  // namespace
}  // namespace yoke::metrics
