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
    report.what = "the ranks called different operations";
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

TEST_F(FlightFolder, RecordsWhateverAPeerCalled) {
  FlightRecorder recorder(0, 1, "node\xff", 100);
  Descriptor strange = call(1, "a");
  std::memset(static_cast<void*>(&strange), 0xc8, sizeof(strange));
  strange.number = 1;
  recorder.failed(recorder.issued("world", strange, 32));
  // Cut off in the middle of a letter.
  recorder.finished(recorder.issued("a group of twenty-two \u00fc",
                                    call(2, "a name of forty-six letters, then an u: .... \u00fc"), 32));
  cluster::FailureReport failure;
  failure.what = "rank 1 sent \xff\xfe";
  recorder.write(folder, &failure);
  auto records = read_flight_records(folder);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].operations.size(), 2u);
}

TEST_F(FlightFolder, EveryWrongFieldIsNamedInOurOwnWords) {
  const std::string whole =
      R"({"rank":0,"world_size":2,"host":"h","pid":1,"operations":[{"group":"g","number":1,"call":"c","state":"s"}],)"
      R"("failure":{"rank":1,"host":"h","pid":1,"step":2,"kind":"k","what":"w","next":"n"}})";
  EXPECT_NO_THROW(parse_flight_record(whole, "rank-0.json"));
  auto error_of = [](const std::string& text) -> std::string {
    try {
      parse_flight_record(text, "rank-0.json");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  for (size_t cut = 0; cut < whole.size(); ++cut)
    EXPECT_NE(error_of(whole.substr(0, cut)).find("rank-0.json is not a flight record"), std::string::npos);
  const nlohmann::json good = nlohmann::json::parse(whole);
  auto expect_refused = [&](const nlohmann::json& wrong) {
    std::string error = error_of(wrong.dump());
    EXPECT_NE(error.find("rank-0.json"), std::string::npos) << wrong.dump();
    EXPECT_EQ(error.find("json.exception"), std::string::npos) << error;
  };
  for (const char* place : {"", "/operations/0", "/failure"}) {
    for (const auto& [key, value] : good[nlohmann::json::json_pointer(place)].items()) {
      nlohmann::json wrong = good;
      auto& object = wrong[nlohmann::json::json_pointer(place)];
      for (const nlohmann::json& other :
           {nlohmann::json(nullptr), nlohmann::json(1e300), nlohmann::json({{"a", 1}})}) {
        object[key] = other;
        expect_refused(wrong);
      }
      object.erase(key);
      if (key != "failure") expect_refused(wrong);
    }
  }
  nlohmann::json outside = good;
  outside["rank"] = 2;
  expect_refused(outside);
}

TEST_F(FlightFolder, NoFolderAndNoRecordsAreErrors) {
  EXPECT_THROW(read_flight_records(folder), ConfigError);
  fs::create_directories(folder);
  EXPECT_THROW(read_flight_records(folder), ConfigError);
}

}  // namespace
}  // namespace yoke::comm
