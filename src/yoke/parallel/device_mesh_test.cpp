#include "yoke/parallel/device_mesh.h"

#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/comm/run_ranks.h"

namespace yoke::parallel {
namespace {

TEST(DeviceMesh, HasACommunicatorAlongEachAxis) {
  comm::run_ranks(12, [](comm::Communicator& world) {
    DeviceMesh mesh(world, {.pipeline = 3, .data = 2, .tensor = 2});
    const Coordinates& here = mesh.here();
    EXPECT_EQ(mesh.mesh().rank_of(here), world.rank());
    EXPECT_EQ(mesh.axis("pipeline").size(), 3);
    EXPECT_EQ(mesh.axis("pipeline").rank(), here.pipeline);
    EXPECT_EQ(mesh.axis("data").rank(), here.data);
    EXPECT_EQ(mesh.axis("tensor").rank(), here.tensor);
    std::vector<float> sum = {static_cast<float>(world.rank())};  // neighbours: 2k and 2k + 1
    mesh.axis("tensor").all_reduce(sum).wait();
    EXPECT_EQ(sum[0], static_cast<float>(4 * (world.rank() / 2) + 1));
    EXPECT_THROW(mesh.axis("expert"), ConfigError);
  });
}

TEST(DeviceMesh, RefusesAxesThatDoNotMultiply) {
  comm::run_ranks(
      4, [](comm::Communicator& world) { EXPECT_THROW(DeviceMesh(world, {.pipeline = 3}), ConfigError); });
}

}  // namespace
}  // namespace yoke::parallel
