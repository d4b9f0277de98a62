#include "yoke/parallel/sync/servers/named_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "yoke/base/error.h"

namespace yoke::parallel {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const std::vector<ps::sparse::Key> kNamed = {1, 4};

TEST(NamedRows, AreTakenFromADenseGradient) {
  for (auto type : {torch::kFloat32, torch::kFloat64, torch::kBFloat16}) {
    torch::Tensor gradient = torch::zeros({6, 3}, type);
    gradient[1][2] = 5;
    gradient[4][0] = -7;
    const torch::Tensor rows = named_rows({"weight", gradient}, gradient, kNamed);
    EXPECT_TRUE(rows.equal(gradient.index_select(0, torch::tensor({1, 4}))));
    EXPECT_TRUE(named_rows({"weight", gradient}, gradient.t().contiguous().t(), kNamed).equal(rows));
  }
}

// In every step, not only in the first.
TEST(NamedRows, AnotherRowWithAGradientIsAnErrorThatNamesIt) {
  for (auto type : {torch::kFloat32, torch::kFloat64, torch::kBFloat16})
    for (double value : {1e-30, -2.0, std::numeric_limits<double>::quiet_NaN()}) {
      torch::Tensor gradient = torch::zeros({6, 3}, type);
      gradient[1][2] = 5;
      named_rows({"weight", gradient}, gradient, kNamed);
      gradient[3][1] = value;
      EXPECT_THAT(
          [&] {
            named_rows({"weight", gradient}, gradient, kNamed);
          },
          ThrowsMessage<ConfigError>(HasSubstr("row 3 of 'weight' has a gradient")));
    }
}

TEST(NamedRows, MayBeNone) {
  const torch::Tensor gradient = torch::zeros({6, 3});
  EXPECT_EQ(named_rows({"weight", gradient}, gradient, {}).size(0), 0);
}

}  // namespace
}  // namespace yoke::parallel
