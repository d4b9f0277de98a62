#include "yoke/parallel/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::parallel {
namespace {

using testing::HasSubstr;

TEST(Mesh, RanksAndCoordinatesAreTheSameThing) {
  for (int pipeline : {1, 2, 3})
    for (int data : {1, 2, 5})
      for (int tensor : {1, 4}) {
        Mesh mesh{pipeline, data, tensor};
        ASSERT_EQ(mesh.size(), pipeline * data * tensor);
        for (int rank = 0; rank < mesh.size(); ++rank) EXPECT_EQ(mesh.rank_of(mesh.at(rank)), rank);
      }
}

TEST(Mesh, TensorNeighboursAreNeighboursInTheWorld) {
  Mesh mesh{2, 2, 2};
  EXPECT_EQ(mesh.at(0), (Coordinates{0, 0, 0}));
  EXPECT_EQ(mesh.at(1), (Coordinates{0, 0, 1}));
  EXPECT_EQ(mesh.at(2), (Coordinates{0, 1, 0}));
  EXPECT_EQ(mesh.at(7), (Coordinates{1, 1, 1}));
  EXPECT_EQ(groups_along(mesh, "tensor"), (std::vector<std::vector<int>>{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(groups_along(mesh, "data"), (std::vector<std::vector<int>>{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(groups_along(mesh, "pipeline"), (std::vector<std::vector<int>>{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

TEST(Mesh, TextAndBack) {
  for (const Mesh& mesh : {Mesh{}, Mesh{2, 1, 1}, Mesh{2, 3, 4}, Mesh{1, 1, 8}})
    EXPECT_EQ(parse_mesh(to_string(mesh)), mesh) << to_string(mesh);
  EXPECT_EQ(to_string(Mesh{2, 1, 4}), "pipeline=2,tensor=4");
  for (const char* bad :
       {"", "rows=2", "data", "data=0", "data=-1", "data=2x", "data=2,data=2", "data=1048577"})
    EXPECT_THROW(parse_mesh(bad), ConfigError) << bad;
}

TEST(Mesh, TheProductOfItsAxesIsTheWorld) {
  EXPECT_EQ(fit_mesh(8, 2, 0, 2), (Mesh{2, 2, 2}));
  EXPECT_EQ(fit_mesh(1, 1, 0, 1), (Mesh{1, 1, 1}));
  auto text = [](int ranks, int64_t pipeline, int64_t data, int64_t tensor) {
    try {
      fit_mesh(ranks, pipeline, data, tensor);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(text(6, 2, 0, 2), HasSubstr("a multiple of 4 is needed. Next: start 4 or 8"));
  EXPECT_THAT(text(8, 2, 3, 1), HasSubstr("parallel.data = 4"));
  EXPECT_THAT(text(1, 4, 0, 1),
              HasSubstr("1 rank was started, but a multiple of 4 is needed. Next: start 4 ("));
  EXPECT_THAT(text(7, 2, 3, 1), HasSubstr("the mesh has 6. Next: start 6 (--nproc 6)."));
}

}  // namespace
}  // namespace yoke::parallel
