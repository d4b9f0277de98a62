#include "yoke/config/tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/config/schema.h"

namespace yoke::config {
namespace {

using ::testing::HasSubstr;

struct Row {
  std::string match;
  double lr = 1;
  bool freeze = false;
};

void describe(Fields& f, Row& o) {
  f.text("match", o.match, "");
  f.number("lr", o.lr, "");
  f.boolean("freeze", o.freeze, "");
}

std::string problem_of(const std::string& text) {
  std::string problem;
  read_tables<Row>(text, problem);
  return problem;
}

TEST(Tables, ATextGivesOneRowForEachTable) {
  std::string problem;
  auto rows = read_tables<Row>(R"([{match = "*.bias", lr = 2}, {match = "é.*", freeze = true}])", problem);
  EXPECT_EQ(problem, "");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].match, "*.bias");
  EXPECT_EQ(rows[0].lr, 2);
  EXPECT_FALSE(rows[0].freeze);
  EXPECT_EQ(rows[1].match, "é.*");
  EXPECT_TRUE(rows[1].freeze);
  EXPECT_EQ(problem_of(""), "");
  EXPECT_EQ(problem_of("[]"), "");
}

TEST(Tables, WhatIsNoListOfTablesIsRefused) {
  for (const char* text : {"3", "[3]", "{match = \"a\"}", "[{match = [1]}]", "[{match = {a = 1}}]", "[{match",
                           "[]\nother = 1", "[[]]", "[{match = 1979-05-27}]"})
    EXPECT_THAT(problem_of(text), HasSubstr("a list of tables such as")) << text;
}

TEST(Tables, UnknownAndWrongFieldsAreNamed) {
  EXPECT_THAT(problem_of("[{match = \"a\", frieze = true}]"),
              HasSubstr("not `frieze` (did you mean freeze?)"));
  EXPECT_THAT(problem_of("[{lr = \"fast\"}]"), HasSubstr("for lr a number"));
  EXPECT_THAT(problem_of("[{lr = -1}]"), HasSubstr("at least 0"));
}

struct Grouped {
  std::string groups;
};

void describe(Fields& f, Grouped& o) {
  f.checked_text("groups", o.groups, "", [](const std::string& text) { return problem_of(text); });
}

// A file, the text of the same, and what the configuration prints, are one value.
TEST(Tables, AFileMayWriteThemAsTomlDoes) {
  const char* const kFiles[] = {
      "[train]\ngroups = [{match = \"*.bias\", lr = 2}, {match = \"fc.*\"}]\n",
      "[[train.groups]]\nmatch = \"*.bias\"\nlr = 2\n[[train.groups]]\nmatch = \"fc.*\"\n",
      "[train]\ngroups = '[{lr = 2, match = \"*.bias\"}, {match = \"fc.*\"}]'\n"};
  for (const char* file : kFiles) {
    Grouped options, again;
    Schema schema, reader;
    schema.section("train", options);
    reader.section("train", again);
    schema.read_text(file, "a.toml");
    EXPECT_EQ(options.groups, "[{lr = 2, match = \"*.bias\"}, {match = \"fc.*\"}]") << file;
    reader.read_text(schema.to_toml(), "b.toml");
    EXPECT_EQ(again.groups, options.groups);
  }
  Grouped none;
  Schema schema;
  schema.section("train", none);
  EXPECT_THAT(schema.to_toml(), HasSubstr("groups = []"));
}

TEST(Tables, AFileWithSomethingElseIsRefusedByName) {
  Grouped options;
  Schema schema;
  schema.section("train", options);
  for (const char* file :
       {"[train]\ngroups = 3\n", "[train]\ngroups = [1, 2]\n", "[train.groups]\nmatch = \"a\"\n",
        "[train]\ngroups = [{match = \"a\", lt = 2}]\n"}) {
    try {
      schema.read_text(file, "a.toml");
      ADD_FAILURE() << file;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("train.groups")) << file;
      EXPECT_THAT(error.what(), HasSubstr("a.toml:")) << file;
    }
  }
}

}  // namespace
}  // namespace yoke::config
