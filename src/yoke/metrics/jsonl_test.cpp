#include "yoke/metrics/jsonl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/metrics/test_folder.h"

namespace yoke::metrics {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Record at(int64_t step, double loss = 1) {
  Record record;
  record.step = step;
  record.loss = loss;
  return record;
}

std::vector<int64_t> steps_in(const std::filesystem::path& path) {
  std::vector<int64_t> steps;
  for (const Record& record : read_records(path).records) steps.push_back(record.step);
  return steps;
}

void write_run(const std::filesystem::path& path, int64_t first_step, std::vector<int64_t> steps,
               double loss = 1) {
  JsonLines sink(path);
  sink.start({.first_step = first_step});
  for (int64_t step : steps) sink.write(at(step, loss));
}

TEST(JsonLines, WritesOneObjectALineAndMakesItsFolder) {
  auto path = fresh_folder() / "deep" / "metrics.jsonl";
  write_run(path, 0, {10, 20});
  std::string text = read_file(path);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_EQ(nlohmann::json::parse(text.substr(0, text.find('\n')))["step"], 10);
}

TEST(JsonLines, HasEachRecordOnDiskAtOnce) {
  auto path = fresh_folder() / "metrics.jsonl";
  JsonLines sink(path);
  sink.start({});
  sink.write(at(10));
  EXPECT_THAT(steps_in(path), ElementsAre(10));
}

TEST(JsonLines, CutsOffWhatLiesBehindTheStepItGoesOnFrom) {
  auto path = fresh_folder() / "metrics.jsonl";
  write_run(path, 0, {10, 20, 30, 40}, 1);
  write_run(path, 20, {30, 40, 50}, 2);
  RecordFile file = read_records(path);
  EXPECT_THAT(steps_in(path), ElementsAre(10, 20, 30, 40, 50));
  EXPECT_EQ(file.records[1].loss, 1);
  EXPECT_EQ(file.records[2].loss, 2);
}

TEST(JsonLines, DropsATornLastLine) {
  auto path = fresh_folder() / "metrics.jsonl";
  write_run(path, 0, {10, 20});
  std::ofstream(path, std::ios::app) << R"({"step":30,"ti)";
  EXPECT_TRUE(read_records(path).torn_end);
  write_run(path, 20, {30});
  EXPECT_THAT(steps_in(path), ElementsAre(10, 20, 30));
  EXPECT_EQ(read_records(path).bad_lines, 0);
}

TEST(JsonLines, EndsAWholeLastLineThatLacksItsNewline) {
  auto path = fresh_folder() / "metrics.jsonl";
  write_run(path, 0, {10, 20});
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  write_run(path, 20, {30});
  EXPECT_THAT(steps_in(path), ElementsAre(10, 20, 30));
}

TEST(JsonLines, DropsDamagedLinesBehindTheStepAndLeavesThoseBefore) {
  auto path = fresh_folder() / "metrics.jsonl";
  write_run(path, 0, {10});
  std::ofstream(path, std::ios::app) << "early\n\n" << to_json(at(20)).dump() << "\nlate\n\n[]\n";
  ::testing::internal::CaptureStderr();
  write_run(path, 20, {30});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("2 such line(s) at its end are dropped"));
  EXPECT_THAT(steps_in(path), ElementsAre(10, 20, 30));
  EXPECT_EQ(read_records(path).bad_lines, 1);
}

TEST(JsonLines, ReadsTheEndOnlyOfALongFile) {
  auto path = fresh_folder() / "metrics.jsonl";
  write_run(path, 0, {10, 20});
  std::filesystem::resize_file(path, 0);
  std::filesystem::resize_file(path, size_t{1} << 33);  // a hole
  std::ofstream(path, std::ios::app) << "\n"
                                     << to_json(at(20)).dump() << "\n"
                                     << to_json(at(30)).dump() << "\n";
  EXPECT_EQ(last_recorded_step(path), 30);
  write_run(path, 20, {25});
  EXPECT_EQ(last_recorded_step(path), 25);
}

TEST(JsonLines, AFileWithoutARecordHasNoLastStep) {
  auto path = fresh_folder() / "metrics.jsonl";
  EXPECT_EQ(last_recorded_step(path), 0);
  std::ofstream(path) << "\n\ngarbage";
  EXPECT_EQ(last_recorded_step(path), 0);
  write_run(path, 5, {6});
  EXPECT_THAT(steps_in(path), ElementsAre(6));
}

TEST(JsonLines, StartsOverWithARunFromStepZero) {
  auto path = fresh_folder() / "metrics.jsonl";
  write_run(path, 0, {0, 10, 20});
  write_run(path, 0, {0, 10});
  EXPECT_THAT(steps_in(path), ElementsAre(0, 10));
}

TEST(JsonLines, LeavesAFileAloneThatNeedsNoCut) {
  auto path = fresh_folder() / "metrics.jsonl";
  write_run(path, 0, {10, 20});
  auto inode_kept = std::filesystem::hard_link_count(path);
  std::filesystem::create_hard_link(path, path.parent_path() / "link");
  write_run(path, 20, {});
  EXPECT_EQ(std::filesystem::hard_link_count(path), inode_kept + 1);
}

TEST(JsonLines, HoldsRecordsOfAFullDiskUntilThereIsRoom) {
  auto folder = fresh_folder();
  auto path = folder / "metrics.jsonl";
  {
    JsonLines sink(path);
    sink.start({});
    sink.write(at(10));
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    auto ignored = std::signal(SIGXFSZ, SIG_IGN);
    // Room for a part of a line: no part of it may stay.
    rlimit full{std::filesystem::file_size(path) + 7, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
    ::testing::internal::CaptureStderr();
    EXPECT_NO_THROW(sink.write(at(20)));
    EXPECT_NO_THROW(sink.write(at(30)));
    std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(read_records(path).records.size(), 1u);
    EXPECT_EQ(read_records(path).bad_lines, 0);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    std::signal(SIGXFSZ, ignored);
    EXPECT_THAT(said, HasSubstr(path.string()));
    EXPECT_EQ(said.find("The run goes on"), said.rfind("The run goes on")) << "once: " << said;
    sink.write(at(40));
  }
  RecordFile file = read_records(path);
  ASSERT_EQ(file.records.size(), 4u);
  EXPECT_EQ(file.bad_lines, 0);
  EXPECT_EQ(file.records[2].step, 30);
}

TEST(JsonLines, TellsWhatAFullDiskCostInTheEnd) {
  auto path = fresh_folder() / "metrics.jsonl";
  std::filesystem::create_symlink("/dev/full", path);
  ::testing::internal::CaptureStderr();
  {
    JsonLines sink(path);
    sink.start({});
    sink.write(at(10));
  }
  std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("No space left"));
  EXPECT_THAT(said, HasSubstr("are lost"));
}

TEST(JsonLines, NamesTheFolderItCannotMake) {
  auto folder = fresh_folder();
  std::ofstream(folder / "file") << "x";
  JsonLines sink(folder / "file" / "metrics.jsonl");
  try {
    sink.start({});
    FAIL() << "made a folder below a file";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr((folder / "file").string()));
  }
}

TEST(ReadRecords, CountsBadLinesAndGoesOn) {
  auto path = fresh_folder() / "metrics.jsonl";
  write_run(path, 0, {10});
  std::ofstream(path, std::ios::app) << "garbage\n\n" << to_json(at(20)).dump() << "\n[]\n";
  RecordFile file = read_records(path);
  EXPECT_THAT(steps_in(path), ElementsAre(10, 20));
  EXPECT_EQ(file.bad_lines, 2);
  EXPECT_EQ(file.first_bad_line, 2);
  EXPECT_FALSE(file.torn_end);
}

TEST(ReadRecords, KeepsTheLaterOfTwoRecordsOfOneStep) {
  auto path = fresh_folder() / "metrics.jsonl";
  std::ofstream file(path);
  for (int64_t step : {10, 20, 30}) file << to_json(at(step, 1)).dump() << "\n";
  for (int64_t step : {20, 40}) file << to_json(at(step, 2)).dump() << "\n";
  file.close();
  EXPECT_THAT(steps_in(path), ElementsAre(10, 20, 40));
  EXPECT_EQ(read_records(path).records[1].loss, 2);
}

}  // namespace
}  // namespace yoke::metrics
