#include "cli/ps_top_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

PsJobStatus job_at(double time, int64_t version) {
  PsJobStatus job{.time = time};
  for (int64_t id = 0; id < 2; ++id)
    job.servers.push_back({.id = id,
                           .ranges = 12,
                           .copies = 11,
                           .bytes = 3 << 20,
                           .clock = version,
                           .newest = version + 1,
                           .pushed_bytes = version * (1 << 20),
                           .replicas = 1,
                           .lag = 2});
  job.servers[1].schedules = true;
  job.servers[1].version = version;
  job.servers[1].workers = {{.id = 0, .clock = version, .minibatch = 2 * version, .state = "computing"},
                            {.id = 1, .clock = 3, .staleness = 7, .state = "lost"}};
  return job;
}

TEST(PsTopView, FitsIntoEightyColumnsAndMarksTheScheduler) {
  PsJobStatus job = job_at(10, 123456789);
  job.absent = {"parameter server 2 (rank 5): " + std::string(100, 'x')};
  const std::string table = draw_table(job, job_at(8, 123456689));
  for (const std::string& line : split(table, '\n')) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_THAT(table, AllOf(HasSubstr("50.0 updates/s"), HasSubstr(" 52.43 MB"), HasSubstr(" 123456789"),
                           HasSubstr("1*"), HasSubstr("lost")));
}

TEST(PsTopView, WithoutAPreviousStateRatesAreUnknown) {
  EXPECT_THAT(draw_table(job_at(1, 5), {}), HasSubstr("version 5, - updates/s"));
  EXPECT_FALSE(to_json(job_at(1, 5), {}).contains("updates_per_s"));
}

TEST(PsTopView, JsonHasServersAndWorkers) {
  const nlohmann::json json = to_json(job_at(3, 30), job_at(1, 10));
  EXPECT_EQ(json["version"], 30);
  EXPECT_EQ(json["updates_per_s"], 10);
  for (const char* key : {"id", "ranges", "bytes", "keys", "clock", "replicas", "lag"})
    EXPECT_TRUE(json["servers"][0].contains(key)) << key;
  for (const char* key : {"id", "clock", "staleness", "state"})
    EXPECT_TRUE(json["workers"][1].contains(key)) << key;
}

TEST(PsTopView, AJobWhoseSchedulerIsSilentIsShown) {
  PsJobStatus job = job_at(1, 5);
  job.servers.pop_back();
  EXPECT_THAT(draw_table(job, {}), HasSubstr("the scheduler does not answer"));
  EXPECT_TRUE(to_json(job, {})["workers"].empty());
}

TEST(PsStatus, SurvivesTheWayThroughTextAndRefusesOthers) {
  const ps::ServerStatus status = job_at(1, 5).servers[1];
  EXPECT_EQ(ps::parse_server_status(ps::to_json(status).dump()), status);
  for (const char* text : {"", "{", "[]", "{\"id\": \"x\"}", "{\"id\": 1}"})
    EXPECT_THROW(ps::parse_server_status(text), CommError) << text;
}

}  // namespace
}  // namespace yoke::cli
