#include "yoke/parallel/fit.h"

#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::parallel {
namespace {

TEST(Fit, MeshOfTheAxesThatAreSet) {
  Choices choices;
  EXPECT_EQ(mesh_of(choices, 4), (Mesh{1, 4, 1}));
  choices.parallel.pipeline = 2;
  choices.parallel.tensor = 2;
  EXPECT_EQ(mesh_of(choices, 8), (Mesh{2, 2, 2}));
  EXPECT_THROW(mesh_of(choices, 6), ConfigError);
}

TEST(Fit, MeshOfAPlanCountsTheReplicasOfStages) {
  Choices choices;
  choices.stage_replicas = {2, 1};
  choices.parallel.pipeline = 2;
  EXPECT_EQ(mesh_of(choices, 3), (Mesh{2, 1, 1}));
  EXPECT_EQ(mesh_of(choices, 6), (Mesh{2, 2, 1}));
}

TEST(Fit, ReplicasThatAreThreadsAreAlongTheDataAxis) {
  Choices choices;
  choices.parallel.sync = "threads";
  choices.parallel.data = 3;
  EXPECT_EQ(mesh_of(choices, 1), (Mesh{1, 3, 1}));
}

TEST(Fit, APartitionTakesWhatTheDataAxisLeaves) {
  Choices choices;
  choices.parallel.partition = "auto";
  EXPECT_EQ(mesh_of(choices, 4), (Mesh{4, 1, 1}));
  choices.parallel.data = 2;
  EXPECT_EQ(parts_of(choices, 4), 2);
  choices.parallel.data = 4;
  EXPECT_THROW(parts_of(choices, 4), ConfigError);
}

TEST(Fit, StagesMustFitTheModelAndTheBatch) {
  Choices choices;
  models::ModelOptions model;
  model.name = "mlp";
  choices.parallel.pipeline = 2;
  EXPECT_NO_THROW(check_workers(choices, {model, 8}, 2));
  choices.parallel.pipeline = 4;  // two blocks
  EXPECT_THROW(check_workers(choices, {model, 8}, 4), ConfigError);
  choices.parallel.pipeline = 2;
  choices.pipeline.microbatches = 9;
  EXPECT_THROW(check_workers(choices, {model, 8}, 2), ConfigError);
}

}  // namespace
}  // namespace yoke::parallel
