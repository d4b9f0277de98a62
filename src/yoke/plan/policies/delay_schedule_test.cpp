#include "yoke/plan/policies/delay_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/plan/policies/rule.h"
#include "yoke/plan/policies/test_table.h"

namespace yoke::plan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

constexpr int64_t kInf = PolicyOptions::kUnbounded;

TEST(DelaySchedule, ReadsOneDelayOrSeveral) {
  EXPECT_THAT(parse_delay_schedule("d", "3"), ElementsAre(DelayStep{0, 3}));
  EXPECT_THAT(parse_delay_schedule("d", "inf"), ElementsAre(DelayStep{0, kInf}));
  EXPECT_THAT(parse_delay_schedule("d", "0, 500:4, 2000 : inf"),
              ElementsAre(DelayStep{0, 0}, DelayStep{500, 4}, DelayStep{2000, kInf}));
}

TEST(DelaySchedule, HoldsFromItsUpdateOn) {
  auto schedule = parse_delay_schedule("d", "0, 500:4, 2000:inf");
  EXPECT_EQ(delay_at(schedule, 0), 0);
  EXPECT_EQ(delay_at(schedule, 499), 0);
  EXPECT_EQ(delay_at(schedule, 500), 4);
  EXPECT_EQ(delay_at(schedule, 1999), 4);
  EXPECT_EQ(delay_at(schedule, 1'000'000), kInf);
}

TEST(DelaySchedule, NamesThePartThatIsWrong) {
  for (const char* text : {"", "x", "-1", "5:1", "0, 4", "0, 5:x", "0, x:5", "0, 0:1", "0, 9:1, 9:2",
                           "0, 9:1, 4:2", "0, :3", "0, 5:", "0, 99999999999999999999:1", "1:2:3"})
    EXPECT_THAT([&] { parse_delay_schedule("ps.max_delay", text); },
                ThrowsMessage<ConfigError>(HasSubstr("ps.max_delay")))
        << text;
  EXPECT_THAT([] { parse_delay_schedule("d", "0, 9:1, 4:2"); },
              ThrowsMessage<ConfigError>(HasSubstr("'4:2'")));
}

// Turned down while workers wait, and up again: somebody computes at any time, and all go on in the end.
TEST(DelaySchedule, NobodyHangsWhenTheDialIsTurned) {
  for (Rule rule : {Rule::kBoundedDelay, Rule::kSsp}) {
    Table table(options_of(rule, 3, 0, 4));
    for (int i = 0; i < 4; ++i) table.push(0);  // four ahead
    EXPECT_THAT(table.push(0).releases, IsEmpty()) << "five are too many";
    table.note(table.policy.set_max_delay(1));
    table.push(1);
    EXPECT_THAT(released(table.push(1)), IsEmpty()) << "the new bound holds for all";
    EXPECT_EQ(table.running.size(), 1u);
    for (int64_t delay : {0, 2, 0, 7, 1, 0}) {
      table.note(table.policy.set_max_delay(delay));
      for (int i = 0; i < 20; ++i) {
        ASSERT_FALSE(table.running.empty()) << "with a delay of " << delay;
        table.push(table.running.begin()->first);
      }
    }
    table.note(table.policy.set_max_delay(kInf));
    EXPECT_EQ(table.running.size(), 3u);
  }
}

}  // namespace
}  // namespace yoke::plan
