#include "yoke/checkpoint/format/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/checkpoint/format/sharded_index.h"

namespace yoke::checkpoint::format {
namespace {

using testing::HasSubstr;

constexpr const char* kDigest = "06b05ab6733a618578af5f94892f3950";

Manifest good() {
  Manifest manifest;
  manifest.step = 12;
  manifest.files = {{"model.safetensors", 100, kDigest}};
  manifest.state = {{"data", {{"epoch", 3}, {"position", 17}}}};
  return manifest;
}

std::string refusal(const std::string& text) {
  try {
    parse_manifest(text, "manifest.json");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

std::string with(const std::string& from, const std::string& to) {
  std::string text = to_json_text(good());
  return text.replace(text.find(from), from.size(), to);
}

TEST(Manifest, SurvivesWritingAndReading) {
  Manifest again = parse_manifest(to_json_text(good()), "manifest.json");
  EXPECT_EQ(again.step, 12);
  EXPECT_EQ(again.files, good().files);
  EXPECT_EQ(again.state, good().state);
}

TEST(Manifest, RefusesWhatIsNone) {
  EXPECT_THAT(refusal(""), HasSubstr("not '{'"));
  EXPECT_THAT(refusal("[]"), HasSubstr("not '{'"));
  EXPECT_THAT(refusal("{}"), HasSubstr("\"format\" is missing"));
  EXPECT_THAT(refusal(with("yoke-checkpoint", "other")), HasSubstr("not a manifest"));
  EXPECT_THAT(refusal(to_json_text(good()) + "x"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(with("}", std::string("\0}", 2))), HasSubstr("NUL byte"));
}

TEST(Manifest, RefusesOtherVersions) {
  EXPECT_THAT(refusal(with("\"version\": 1", "\"version\": 2")),
              HasSubstr("version 2 of the checkpoint format"));
}

TEST(Manifest, RefusesBadNumbersNamesAndDigests) {
  EXPECT_THAT(refusal(with("\"step\": 12", "\"step\": -1")), HasSubstr("\"step\" is not an integer"));
  EXPECT_THAT(refusal(with("\"step\": 12", "\"step\": 1.5")), HasSubstr("\"step\""));
  EXPECT_THAT(refusal(with("\"bytes\": 100", "\"bytes\": 9223372036854775808")), HasSubstr("\"bytes\""));
  EXPECT_THAT(refusal(with("model.safetensors", "../model.safetensors")), HasSubstr("contains a path"));
  EXPECT_THAT(refusal(with("model.safetensors", "/etc/passwd")), HasSubstr("contains a path"));
  EXPECT_THAT(refusal(with("model.safetensors", "COMMITTED")), HasSubstr("appears twice"));
  EXPECT_THAT(refusal(with(kDigest, "06b05")), HasSubstr("no XXH3-128 digest"));
}

TEST(Manifest, RefusesKeysThatStandTwiceAndDeepNesting) {
  EXPECT_THAT(refusal(with("\"step\": 12", "\"step\": 12, \"step\": 13")),
              HasSubstr("\"step\" appears twice"));
  EXPECT_THAT(refusal(with("\"position\": 17", "\"position\": " + std::string(100000, '['))),
              HasSubstr("nested deeper"));
}

TEST(ShardedIndex, ListsTheFilesOfEachTensor) {
  auto index = parse_sharded_index(
      R"({"metadata":{"total_size":12},"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors","c":"m-1.safetensors"}})",
      "i");
  EXPECT_EQ(index.weight_map.at("c"), "m-1.safetensors");
  EXPECT_EQ(index.files(), (std::set<std::string>{"m-1.safetensors", "m-2.safetensors"}));
}

TEST(ShardedIndex, RefusesNamesThatLeaveTheFolder) {
  for (const char* bad : {"/etc/passwd", "../x", "a/../../x", "a/b", "..", "", "a\\\\b", "a\\u0000b"}) {
    std::string text = R"({"weight_map":{"a":")" + std::string(bad) + "\"}}";
    EXPECT_THROW(parse_sharded_index(text, "i"), ConfigError) << bad;
  }
}

TEST(ShardedIndex, RefusesWhatIsNoIndex) {
  EXPECT_THROW(parse_sharded_index("{}", "i"), ConfigError);
  EXPECT_THROW(parse_sharded_index(R"({"weight_map":[]})", "i"), ConfigError);
  EXPECT_THROW(parse_sharded_index(R"({"weight_map":{"a":1}})", "i"), ConfigError);
  EXPECT_THROW(parse_sharded_index(R"({"weight_map":{"a":"x","a":"y"}})", "i"), ConfigError);
}

}  // namespace
}  // namespace yoke::checkpoint::format
