#include "yoke/metrics/class_results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/metrics/json_fields.h"

namespace yoke::metrics {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ClassResults parsed(const nlohmann::json& json) {
  return parse_class_results(JsonFields(json, "classes"));
}

TEST(ClassResults, CountSamplesAndConfusedPairs) {
  const ClassResults results = make_class_results({5, 1, 0, 4, 2, 3, 0, 0, 0}, {"cat", "dog", "eel"});
  EXPECT_THAT(results.samples, ElementsAre(6, 9, 0));
  EXPECT_THAT(results.correct, ElementsAre(5, 2, 0));
  EXPECT_THAT(results.confusion[1], ElementsAre(4, 2, 3));
  ASSERT_EQ(results.confused.size(), 3u);
  EXPECT_EQ(results.confused[0].actual, 1);
  EXPECT_EQ(results.confused[0].predicted, 0);
  EXPECT_EQ(results.confused[0].count, 4);
  const auto json = to_json(results);
  EXPECT_EQ(json["accuracy"][0], 5.0 / 6);
  EXPECT_TRUE(json["accuracy"][2].is_null()) << "no sample of this class";
}

TEST(ClassResults, OfManyClassesShowOnlyTheMostConfusedPairs) {
  std::vector<int64_t> counts(100 * 100, 1);
  counts[7 * 100 + 8] = 9;
  const ClassResults results = make_class_results(counts, {});
  EXPECT_TRUE(results.confusion.empty());
  EXPECT_EQ(results.confused.size(), 30u);
  EXPECT_EQ(results.confused[0].count, 9);
  EXPECT_EQ(results.name_of(7), "7");
}

TEST(ClassResults, ReadBackWhatTheyWrite) {
  for (size_t classes : {3u, 40u}) {
    std::vector<int64_t> counts(classes * classes, 2);
    const auto json = to_json(make_class_results(counts, std::vector<std::string>(classes, "name")));
    EXPECT_EQ(to_json(parsed(nlohmann::json::parse(json.dump()))), json);
  }
}

TEST(ClassResults, RefuseDamagedDocuments) {
  const nlohmann::json good =
      nlohmann::json::parse(to_json(make_class_results({5, 1, 4, 2}, {"cat", "dog"})).dump());
  auto error_with = [&](const char* key, nlohmann::json value) -> std::string {
    nlohmann::json json = good;
    json[key] = std::move(value);
    try {
      parsed(json);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_with("correct", {1}), HasSubstr("expected 2 numbers, found 1"));
  EXPECT_THAT(error_with("samples", {1, -2}), HasSubstr("-2"));
  EXPECT_THAT(error_with("names", {"cat"}), HasSubstr("1 names for 2 classes"));
  EXPECT_THAT(error_with("names", {"cat", 3}), HasSubstr("texts"));
  EXPECT_THAT(error_with("confusion", {{1, 2}}), HasSubstr("1 rows"));
  EXPECT_THAT(error_with("confused", {{{"class", 2}, {"predicted", 0}, {"count", 1}}}),
              HasSubstr("there are 2 classes"));
}

}  // namespace
}  // namespace yoke::metrics
