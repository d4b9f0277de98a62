#include "yoke/parallel/elastic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/parallel/fit.h"

namespace yoke::parallel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int64_t kBatchSize = 24;

Choices pipeline(int64_t stages, int64_t data = 0) {
  Choices choices;
  choices.parallel.pipeline = stages;
  choices.parallel.data = data;
  return choices;
}

// "3x1+1": stages, replicas, spares.
std::string fitted(const Choices& asked, int ranks) {
  const Choices layout = fit_to_ranks(asked, kBatchSize, ranks);
  const Mesh mesh = mesh_of(layout, ranks);
  EXPECT_EQ(mesh.size() + layout.spares, ranks);
  return fmt::format("{}x{}+{}", mesh.pipeline, mesh.data, layout.spares);
}

TEST(ElasticLayout, RanksThatAreLeftOverAreSpares) {
  EXPECT_EQ(fitted(pipeline(3), 3), "3x1+0");
  EXPECT_EQ(fitted(pipeline(3), 5), "3x1+2");
  EXPECT_EQ(fitted(pipeline(2), 5), "2x2+1");
  EXPECT_EQ(fitted(pipeline(2, 1), 5), "2x1+3");
}

TEST(ElasticLayout, FewerRanksAreFewerReplicasThenFewerStages) {
  EXPECT_EQ(fitted(pipeline(3, 2), 6), "3x2+0");
  EXPECT_EQ(fitted(pipeline(3, 2), 5), "3x1+2");
  EXPECT_EQ(fitted(pipeline(3, 2), 2), "2x1+0");
  EXPECT_EQ(fitted(pipeline(3, 2), 1), "1x1+0");
}

TEST(ElasticLayout, MicroBatchesStayThoseOfAllStages) {
  const int64_t all = fit_to_ranks(pipeline(3), kBatchSize, 3).pipeline.microbatches;
  EXPECT_EQ(all, 12);
  EXPECT_EQ(fit_to_ranks(pipeline(3), kBatchSize, 2).pipeline.microbatches, all);
}

TEST(ElasticLayout, StagesGivenByTheUserAreCutAnewWhenThereAreFewer) {
  Choices asked = pipeline(3);
  asked.pipeline.stages = "0-1,2,3";
  EXPECT_EQ(fit_to_ranks(asked, kBatchSize, 4).pipeline.stages, "0-1,2,3");
  EXPECT_EQ(fit_to_ranks(asked, kBatchSize, 2).pipeline.stages, "");
}

TEST(ElasticLayout, WithoutAPipelineNothingChanges) {
  const Choices layout = fit_to_ranks(Choices(), kBatchSize, 3);
  EXPECT_EQ(layout.parallel.data, 0);
  EXPECT_EQ(layout.spares, 0);
}

TEST(ElasticLayout, AJobStartsWithAllStages) {
  EXPECT_NO_THROW(check_elastic_start(pipeline(3, 2), 6));
  EXPECT_NO_THROW(check_elastic_start(Choices(), 1));
  EXPECT_THAT([] { check_elastic_start(pipeline(3, 2), 5); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("parallel.pipeline = 3, parallel.data = 2: 5 ranks"),
                                               HasSubstr("start 6 or more"))));
}

TEST(CheckElastic, PipelinesWhoseStepsAreCompleteAreAccepted) {
  for (const char* schedule : {"naive", "gpipe", "1f1b", "interleaved", "zb-h1", "pipedream", "2bw"}) {
    Choices choices = pipeline(2);
    choices.pipeline.schedule = schedule;
    auto check = [&] { check_elastic(choices, "sgd", /*gpu=*/false); };
    if (schedule == std::string("pipedream") || schedule == std::string("2bw"))
      EXPECT_THAT(check, ThrowsMessage<ConfigError>(HasSubstr("batches are in flight between two steps")));
    else
      EXPECT_NO_THROW(check()) << schedule;
  }
  Choices planned = pipeline(2);
  planned.parallel.plan = "auto";
  EXPECT_THAT([&] { check_elastic(planned, "sgd", false); },
              ThrowsMessage<ConfigError>(HasSubstr("parallel.plan")));
  Choices sharded = pipeline(2);
  sharded.parallel.zero = 1;
  EXPECT_THAT([&] { check_elastic(sharded, "sgd", false); },
              ThrowsMessage<ConfigError>(HasSubstr("parallel.zero = 1")));
}

}  // namespace
}  // namespace yoke::parallel
