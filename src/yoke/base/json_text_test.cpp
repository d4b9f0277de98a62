#include "yoke/base/json_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string refusal(const std::string& text) {
  try {
    parse_json(text, "notes.json");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(JsonText, RefusalsNameFileAndLineInOurWords) {
  EXPECT_THAT(refusal("{\n\"a\": 1,\n}"), HasSubstr("notes.json:3: not valid JSON"));
  EXPECT_THAT(refusal("{\"a\": [1, 2"), HasSubstr("the file is truncated"));
  EXPECT_THAT(refusal("{\"a\": 1e999}"), HasSubstr("1e999"));
  EXPECT_THAT(refusal(""), HasSubstr("notes.json:1"));
  EXPECT_THAT(refusal("\xff\xfe{}"), HasSubstr("not valid JSON"));
  for (const char* text : {"{\"a\": 1,}", "{\"a\": 1e999}", "", "nul", "{\"a\" 1}"})
    EXPECT_THAT(refusal(text), Not(HasSubstr("json.exception"))) << text;
  EXPECT_EQ(refusal("{\"a\": 1}"), "accepted");
}

TEST(JsonText, AProblemHasNoTag) {
  nlohmann::json document = {{"rank", "two"}};
  try {
    document.at("world");
    FAIL();
  } catch (const nlohmann::json::exception& error) {
    EXPECT_EQ(json_problem(error), "key 'world' not found");
  }
  try {
    document.at("rank").get<int>();
    FAIL();
  } catch (const nlohmann::json::exception& error) {
    EXPECT_THAT(json_problem(error), HasSubstr("type must be number"));
  }
}

}  // namespace
}  // namespace yoke
