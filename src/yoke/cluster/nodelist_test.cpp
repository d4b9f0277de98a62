#include <gmock/gmock.h>

#include "yoke/base/error.h"
#include "yoke/cluster/identity.h"

namespace yoke::cluster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Nodelist, ExpandsRangesListsAndPlainNames) {
  EXPECT_THAT(expand_nodelist("gnode[10,20-22],x1"),
              ElementsAre("gnode10", "gnode20", "gnode21", "gnode22", "x1"));
  EXPECT_THAT(expand_nodelist("login"), ElementsAre("login"));
  EXPECT_THAT(expand_nodelist("a.cluster.example,b-2"), ElementsAre("a.cluster.example", "b-2"));
}

TEST(Nodelist, KeepsLeadingZeros) {
  EXPECT_THAT(expand_nodelist("n[008-010]"), ElementsAre("n008", "n009", "n010"));
  EXPECT_THAT(expand_nodelist("n[8-10]"), ElementsAre("n8", "n9", "n10"));
}

TEST(Nodelist, CombinesSeveralBracketsLastFastest) {
  EXPECT_THAT(expand_nodelist("r[1-2]n[3-4]x"), ElementsAre("r1n3x", "r1n4x", "r2n3x", "r2n4x"));
}

TEST(Nodelist, RefusesWhatSlurmNeverWrites) {
  for (const char* text : {"", ",", "a,", "a,,b", "n[", "n[]", "n[1", "n1]", "n[1-]", "n[-1]", "n[2-1]",
                           "n[x]", "n[1,]", "n[1 ]", "a b", "n[[1]]", "n[1]]", "n[99999999999999999999]"}) {
    EXPECT_THAT(refusal([&] { expand_nodelist(text); }), HasSubstr("node list")) << text;
  }
}

TEST(Nodelist, RefusesHugeListsBeforeBuildingThem) {
  EXPECT_THAT(refusal([] { expand_nodelist("n[0-99999999999]"); }), HasSubstr("more than 100000 names"));
  EXPECT_THAT(refusal([] { expand_nodelist("n[1-1000]m[1-1000]"); }), HasSubstr("more than 100000 names"));
  EXPECT_EQ(expand_nodelist("n[1-100000]").size(), 100'000u);
}

TEST(TasksPerNode, ExpandsCountsAndRepeats) {
  EXPECT_THAT(expand_tasks_per_node("4(x2),3"), ElementsAre(4, 4, 3));
  EXPECT_THAT(expand_tasks_per_node("1"), ElementsAre(1));
}

TEST(TasksPerNode, RefusesAnythingElse) {
  for (const char* text : {"", ",", "4,", "4(x", "4(x)", "4(x2", "4(x0)", "(x2)", "x", "-1", "0", "4(x2)3",
                           "4(2)", "4(x99999999)", "99999999999"}) {
    EXPECT_THAT(refusal([&] { expand_tasks_per_node(text); }), HasSubstr("tasks per node")) << text;
  }
}

}  // namespace
}  // namespace yoke::cluster
