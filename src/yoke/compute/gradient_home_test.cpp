#include "yoke/compute/gradient_home.h"

#include <gtest/gtest.h>

#include "yoke/compute/layers.h"

namespace yoke::compute {
namespace {

struct GradientHome : testing::Test {
  GradientHome() {
    torch::manual_seed(1);
    weight = torch::randn({3, 4}).requires_grad_();
    x = torch::randn({5, 4});
    place = torch::zeros({3, 4});
    homes.set(weight, place);
    torch::Tensor plain = weight.detach().clone().requires_grad_();
    compute::linear(x, plain, {}).square().sum().backward();
    expected = plain.grad();
  }
  torch::Tensor weight, x, place, expected;
  GradientHomes homes;
};

TEST_F(GradientHome, IsWrittenByLayersWhileInUse) {
  {
    GradientHomes::Use use(homes);
    compute::linear(x, weight, {}).square().sum().backward();
  }
  EXPECT_EQ(weight.grad().data_ptr(), place.data_ptr());
  EXPECT_TRUE(torch::equal(place, expected));
}

TEST_F(GradientHome, IsLeftAloneOtherwise) {
  compute::linear(x, weight, {}).square().sum().backward();
  EXPECT_NE(weight.grad().data_ptr(), place.data_ptr());
  EXPECT_EQ(place.abs().sum().item<float>(), 0);
}

TEST_F(GradientHome, LosesNothingThatIsThereAlready) {
  GradientHomes::Use use(homes);
  for (int i = 0; i < 2; ++i) {
    compute::linear(x, weight, {}).square().sum().backward();
    homes.arrived(weight);
  }
  EXPECT_TRUE(torch::allclose(weight.grad(), 2 * expected));
}

TEST_F(GradientHome, SharedParametersAddUp) {
  GradientHomes::Use use(homes);
  (compute::linear(x, weight, {}).square().sum() + compute::linear(x, weight, {}).square().sum()).backward();
  EXPECT_TRUE(torch::allclose(weight.grad(), 2 * expected));
}

}  // namespace
}  // namespace yoke::compute
