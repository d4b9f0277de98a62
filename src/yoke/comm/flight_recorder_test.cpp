#include "yoke/comm/flight_recorder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/comm/flight_analysis.h"

namespace yoke::comm {
namespace {

namespace fs = std::filesystem;

Descriptor call(uint64_t number, const std::string& name) {
  Descriptor descriptor;
  descriptor.number = number;
  descriptor.count = 8;
  descriptor.set_name(name);
  return descriptor;
}

class FlightFolder : public testing::Test {
 protected:
  FlightFolder() : folder(fs::temp_directory_path() / fmt::format("yoke-flight-test-{}", ::getpid())) {}
  ~FlightFolder() override { fs::remove_all(folder); }
  fs::path folder;
};

TEST(FlightRecorder, KeepsTheLastOperations) {
  FlightRecorder recorder(1, 2, "node1", 42);
  for (uint64_t i = 1; i <= FlightRecorder::kRecords + 10; ++i)
    recorder.finished(recorder.issued("world", call(i, "x"), 32));
  nlohmann::json json = recorder.to_json(nullptr);
  EXPECT_EQ(json["operations"].size(), FlightRecorder::kRecords);
  EXPECT_EQ(json["operations"].front()["number"], 11);
  EXPECT_EQ(json["operations"].back()["state"], "finished");
}

TEST_F(FlightFolder, SaysWhoDivergedFirst) {
  for (int rank = 0; rank < 3; ++rank) {
    FlightRecorder recorder(rank, 3, "node1", 100 + rank);
    recorder.finished(recorder.issued("world", call(1, "a"), 32));
    recorder.failed(recorder.issued("world", call(2, rank == 1 ? "c" : "b"), 32));
    cluster::FailureReport report;
    report.kind = "mismatch";
    report.what = "the ranks ask for different things";
    recorder.write(folder, &report);
  }
  FlightAnalysis analysis = analyse_flight(read_flight_records(folder));
  ASSERT_TRUE(analysis.first_divergence);
  EXPECT_EQ(analysis.first_divergence->rank, 1);
  EXPECT_EQ(analysis.first_divergence->sequence, 2u);
  EXPECT_EQ(analysis.first_divergence->got, "all_reduce #2 'c' sum of fp32 [8]");
  EXPECT_EQ(analysis.culprit->kind, "mismatch");
  EXPECT_TRUE(analysis.missing.empty());
}

TEST_F(FlightFolder, NamesTheRankThatStoppedCalling) {
  for (int rank = 0; rank < 2; ++rank) {
    FlightRecorder recorder(rank, 3, "node1", 100 + rank);
    recorder.finished(recorder.issued("world", call(1, "a"), 32));
    if (rank == 0) recorder.failed(recorder.issued("world", call(2, "b"), 32));
    recorder.write(folder, nullptr);
  }
  FlightAnalysis analysis = analyse_flight(read_flight_records(folder));
  ASSERT_TRUE(analysis.first_divergence);
  EXPECT_EQ(analysis.first_divergence->rank, 1);
  EXPECT_EQ(analysis.first_divergence->got, "nothing");
  EXPECT_EQ(analysis.missing, std::vector<int>{2});
}

TEST_F(FlightFolder, ADamagedRecordIsNamed) {
  fs::create_directories(folder);
  std::ofstream(folder / "rank-0.json") << "{\"rank\": 0";
  try {
    read_flight_records(folder);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("rank-0.json is not a flight record"), std::string::npos);
  }
}

TEST_F(FlightFolder, NoFolderAndNoRecordsAreErrors) {
  EXPECT_THROW(read_flight_records(folder), ConfigError);
  fs::create_directories(folder);
  EXPECT_THROW(read_flight_records(folder), ConfigError);
}

}  // namespace
}  // namespace yoke::comm
