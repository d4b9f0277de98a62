#include "yoke/plan/partition/partition_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::plan {
namespace {

using testing::HasSubstr;

Profile diamond() {
  Profile profile;
  for (const char* name : {"stem", "left", "right", "head"}) profile.layers.push_back({name, 1, 2, 8, 4});
  profile.edges = {{0, 1}, {0, 2}, {1, 3}, {2, 3}};
  return profile;
}

template <class Function>
std::string refusal(Function function) {
  try {
    function();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(PartitionFile, ReadsBackWithTheNamesOfNodes) {
  Profile profile = diamond();
  Partition partition = make_partition(graph_of(profile), {.parts = 2});
  NamedPartition read = parse_partition(to_json(partition, profile).dump(), "parts.json");
  EXPECT_EQ(read.part_of, partition.part_of);
  EXPECT_EQ(read.parts, 2);
  EXPECT_EQ(read.cut_bytes, partition.cut_bytes);
  EXPECT_EQ(parts_of_nodes(read, {"stem", "left", "right", "head"}, "parts.json"), partition.part_of);
}

TEST(PartitionFile, NamesTheFirstDifferenceToAnotherGraph) {
  Profile profile = diamond();
  NamedPartition read =
      parse_partition(to_json(make_partition(graph_of(profile), {.parts = 2}), profile).dump(), "p.json");
  EXPECT_THAT(refusal([&] {
                parts_of_nodes(read, {"stem", "up", "down", "head"}, "p.json");
              }),
              AllOf(HasSubstr("p.json"), HasSubstr("node 1 is 'left' there and 'up' in the model")));
  EXPECT_THAT(refusal([&] {
                parts_of_nodes(read, {"stem", "left"}, "p.json");
              }),
              HasSubstr("4 nodes there, 2 in the model"));
}

TEST(PartitionFile, SaysWhatIsWrong) {
  auto parse = [](const char* text) { return refusal([&] { parse_partition(text, "p.json"); }); };
  EXPECT_THAT(parse("[]"), HasSubstr("p.json"));
  EXPECT_THAT(parse(R"({"parts": [], "cut_bytes": 0})"), HasSubstr("no parts"));
  EXPECT_THAT(parse(R"({"parts": [{"nodes": [0]}], "cut_bytes": 0})"), HasSubstr("names"));
  EXPECT_THAT(parse(R"({"parts": [{"nodes": [], "names": []}], "cut_bytes": 0})"), HasSubstr("parts[0]"));
  EXPECT_THAT(parse(R"({"parts": [{"nodes": [0, 2], "names": ["a", "b"]}], "cut_bytes": 0})"),
              HasSubstr("node 1 is in no part"));
  EXPECT_THAT(parse(R"({"parts": [{"nodes": [0], "names": ["a"]}, {"nodes": [0], "names": ["a"]}],
                       "cut_bytes": 0})"),
              HasSubstr("node 0 is in two parts"));
  EXPECT_THAT(parse(R"({"parts": [{"nodes": [-1], "names": ["a"]}], "cut_bytes": 0})"),
              HasSubstr("numbers of nodes"));
}

}  // namespace
}  // namespace yoke::plan
