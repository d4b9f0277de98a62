#include "yoke/compute/conv_path.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke::compute {
namespace {

const std::vector<ConvPath> kTwo = {ConvPath::kOneDnn, ConvPath::kNative};

thread_local double now_here = 0;

struct Choices : ConvChoices {
  Choices() : ConvChoices([] { return now_here; }) {}
};

ConvChoices::Runner slow_except(ConvPath fast) {
  return [fast](ConvPath path) { now_here += path == fast ? 1e-5 : 2e-3; };
}

std::filesystem::path fresh_file(const char* name) {
  std::filesystem::path file = std::filesystem::path(testing::TempDir()) / name;
  std::filesystem::remove(file);
  return file;
}

TEST(ConvChoices, TakesTheFasterWayAndKeepsIt) {
  Choices choices;
  EXPECT_EQ(choices.choose({"a"}, kTwo, slow_except(ConvPath::kNative)), ConvPath::kNative);
  EXPECT_EQ(choices.choose({"a"}, kTwo, slow_except(ConvPath::kOneDnn)), ConvPath::kNative);
  EXPECT_EQ(choices.choose({"b"}, kTwo, slow_except(ConvPath::kOneDnn)), ConvPath::kOneDnn);
}

TEST(ConvChoices, StaysWithTheDefaultWhenNothingIsGained) {
  Choices choices;
  EXPECT_EQ(choices.choose({"a"}, kTwo,
                           [](ConvPath path) { now_here += path == ConvPath::kOneDnn ? 1e-3 : 0.96e-3; }),
            ConvPath::kOneDnn);
}

TEST(ConvChoices, AForcedWayIsTakenWhereItCanComputeTheLayer) {
  Choices choices;
  choices.set_mode("native");
  auto never = [](ConvPath) { FAIL(); };
  EXPECT_EQ(choices.choose({"a"}, kTwo, never), ConvPath::kNative);
  EXPECT_EQ(choices.choose({"b"}, {ConvPath::kOneDnn, ConvPath::kDirect}, never), ConvPath::kOneDnn);
  EXPECT_THROW(choices.set_mode("fastest"), ConfigError);
}

TEST(ConvChoices, TakesThoseOfTheNearestBatchWhereMeasuringIsSpared) {
  std::filesystem::path file = fresh_file("conv_choices_borrowed.json");
  Choices choices;
  choices.use_file(file);
  auto never = [](ConvPath) { FAIL(); };
  const std::string layer = "3x8x8 planes";
  EXPECT_EQ(choices.choose({"forward", 32, layer}, kTwo, slow_except(ConvPath::kNative)), ConvPath::kNative);
  EXPECT_EQ(choices.choose({"forward", 4, layer}, kTwo, slow_except(ConvPath::kOneDnn)), ConvPath::kOneDnn);
  choices.spare_measuring();
  EXPECT_EQ(choices.choose({"forward", 21, layer}, kTwo, never), ConvPath::kNative);
  EXPECT_EQ(choices.choose({"forward", 7, layer}, kTwo, never), ConvPath::kOneDnn);
  // Another layer, and another direction, are measured; with them the file is written.
  EXPECT_EQ(choices.choose({"forward", 21, "13x8x8 planes"}, kTwo, slow_except(ConvPath::kNative)),
            ConvPath::kNative);
  EXPECT_EQ(choices.choose({"forward 2", 21, layer}, kTwo, slow_except(ConvPath::kOneDnn)),
            ConvPath::kOneDnn);
  EXPECT_NE(choices.to_json().dump().find("forward 21x" + layer), std::string::npos);
  EXPECT_EQ(read_file(file).find("forward 21x" + layer), std::string::npos);
}

TEST(ConvChoices, AnotherProcessFindsTheChoicesInTheFile) {
  std::filesystem::path file = fresh_file("conv_choices.json");
  Choices first, second, third;
  first.use_file(file);
  second.use_file(file);  // before there is anything in it
  EXPECT_EQ(first.choose({"a"}, kTwo, slow_except(ConvPath::kNative)), ConvPath::kNative);
  auto never = [](ConvPath) { FAIL(); };
  EXPECT_EQ(second.choose({"a"}, kTwo, never), ConvPath::kNative);
  third.use_file(file);
  EXPECT_EQ(third.choose({"a"}, kTwo, never), ConvPath::kNative);
}

TEST(ConvChoices, ProcessesThatMeasureAtTheSameTimeAgree) {
  std::filesystem::path file = fresh_file("conv_choices_race.json");
  std::vector<ConvPath> taken(4);
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < taken.size(); ++i) {
    threads.emplace_back([&, i] {
      Choices choices;
      choices.use_file(file);
      taken[i] = choices.choose({"a"}, kTwo, slow_except(i % 2 == 0 ? ConvPath::kNative : ConvPath::kOneDnn));
    });
  }
  for (std::jthread& thread : threads) thread.join();
  for (ConvPath path : taken) EXPECT_EQ(path, taken[0]);
}

TEST(ConvChoices, WhatIsImportedWinsOverTheFile) {
  std::filesystem::path file = fresh_file("conv_choices_import.json");
  Choices first, second;
  first.use_file(file);
  first.choose({"a"}, kTwo, slow_except(ConvPath::kNative));
  nlohmann::json other = first.to_json();
  for (auto& [key, path] : other["choices"].items()) path = "onednn";
  second.import_json(other);
  second.use_file(file);
  EXPECT_EQ(second.choose({"a"}, kTwo, [](ConvPath) { FAIL(); }), ConvPath::kOneDnn);
}

constexpr const char* kDamaged[] = {"",
                                    "[1]",
                                    "{\"version\": 2, \"choices\": {}}",
                                    "{\"version\": 1}",
                                    "{\"version\": 1, \"choices\": {\"a\": \"gpu\"}}",
                                    "{\"version\": 1, \"choices\": {\"a\": 3}}",
                                    "{\"version\": \"1\", \"choices\": {}}"};

TEST(ConvChoices, ADamagedFileIsMeasuredAnewAndReplaced) {
  for (const char* text : kDamaged) {
    std::filesystem::path file = fresh_file("conv_choices_damaged.json");
    write_file_atomically(file, text);
    Choices choices, next;
    choices.use_file(file);
    EXPECT_EQ(choices.choose({"a"}, kTwo, slow_except(ConvPath::kNative)), ConvPath::kNative) << text;
    next.use_file(file);
    EXPECT_EQ(next.choose({"a"}, kTwo, [](ConvPath) { FAIL(); }), ConvPath::kNative) << text;
  }
}

TEST(ConvChoices, AFileThatIsDamagedWhileARunUsesItDoesNotStopTheRun) {
  std::filesystem::path file = fresh_file("conv_choices_damaged_later.json");
  Choices choices;
  choices.use_file(file);
  write_file_atomically(file, "{");
  EXPECT_EQ(choices.choose({"a"}, kTwo, slow_except(ConvPath::kNative)), ConvPath::kNative);
}

TEST(ConvChoices, AFileThatCannotBeWrittenDoesNotStopTheRun) {
  Choices choices;
  choices.use_file("/proc/no such folder/choices.json");
  EXPECT_EQ(choices.choose({"a"}, kTwo, slow_except(ConvPath::kNative)), ConvPath::kNative);
}

TEST(ConvChoices, RefusesADamagedDocumentOfACheckpoint) {
  for (const char* text : kDamaged) {
    auto document = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (document.is_discarded()) continue;
    EXPECT_THROW(Choices().import_json(document), ConfigError) << text;
  }
}

}  // namespace
}  // namespace yoke::compute
