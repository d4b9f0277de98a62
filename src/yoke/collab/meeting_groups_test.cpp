// Averaging in groups of a grid.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/collab/test_meeting.h"

namespace yoke::collab {
namespace {

using Json = nlohmann::json;
using testing::Room;

struct Grid : Room {
  explicit Grid(int peers) : Room(options_on_a_grid()), last(static_cast<size_t>(peers)) {
    fill(peers);
    for (int i = 0; i < peers; ++i) EXPECT_EQ(work(i, 48 / peers).at("type"), "lease");
    for (int i = 0; i < peers; ++i) meeting.request(i, done_message(48 / peers), now);
    hear();
  }
  static MeetingOptions options_on_a_grid() {
    MeetingOptions options = options_of(48);
    options.group_size = 2;
    return options;
  }
  static Json done_message(int64_t samples) {
    return {{"type", "work"},
            {"epoch", 0},
            {"want", 1},
            {"done", {{"samples", samples}, {"loss", 1.0}, {"seconds", 1}}}};
  }
  // What each was told last; null: nothing since.
  void hear() {
    for (size_t i = 0; i < last.size(); ++i) last[i] = reply_to(static_cast<int>(i));
  }
  void give(size_t peer, bool complete = true, Json lost = Json::array()) {
    const Json round = last[peer];
    meeting.request(static_cast<int>(peer),
                    {{"type", "result"},
                     {"epoch", 0},
                     {"attempt", round.at("attempt")},
                     {"complete", complete},
                     {"lost", lost},
                     {"outliers", Json::array()},
                     {"usual_size", 0},
                     {"received", Json::array()}},
                    now);
  }
  static std::vector<int> members(const Json& round) {
    std::vector<int> all;
    for (const Json& member : round.at("members")) all.push_back(member.at("peer"));
    return all;
  }

  std::vector<Json> last;
};

TEST(Meeting, OnAGridPeersAverageInPairsAndMeetEachOnce) {
  Grid grid(4);
  std::vector<Json> first = grid.last;
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(first[i].at("phase"), 0);
    EXPECT_EQ(first[i].at("members").size(), 2u);
    grid.give(i);
  }
  grid.hear();
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(grid.last[i].at("phase"), 1);
    EXPECT_EQ(grid.last[i].at("members").size(), 2u);
    EXPECT_NE(Grid::members(grid.last[i]), Grid::members(first[i]));
    for (const Json& member : grid.last[i].at("members"))
      EXPECT_EQ(member.at("weight"), 24) << "of its first group";
    grid.give(i);
  }
  grid.hear();
  for (const Json& message : grid.last) EXPECT_EQ(message.at("type"), "commit");
}

// Another peer with the same value takes its place, so that all still agree.
TEST(Meeting, APeerLostInALaterPhaseIsReplacedByOneOfItsFirstGroup) {
  Grid grid(4);
  for (size_t i = 0; i < 4; ++i) grid.give(i);
  grid.hear();
  const auto lost = static_cast<size_t>(3);
  const std::vector<int> with = Grid::members(grid.last[lost]);
  const auto partner = static_cast<size_t>(with[0] == 3 ? with[1] : with[0]);
  grid.meeting.closed(static_cast<int>(lost), grid.now);
  for (size_t i = 0; i < 3; ++i)
    grid.give(i, i != partner,
              i == partner ? Json::array({{{"peer", 3}, {"why", "closed"}}}) : Json::array());
  grid.hear();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(grid.last[i].at("phase"), 1);
    EXPECT_EQ(grid.last[i].at("members").size(), 3u) << "one pair, and one that only receives";
    EXPECT_EQ(grid.last[i].at("members")[2].at("weight"), 0);
    grid.give(i);
  }
  grid.hear();
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(grid.last[i].at("type"), "commit");
}

// Only its group repeats.
TEST(Meeting, AGroupThatFailsDoesNotConcernOthers) {
  Grid grid(4);
  const std::vector<Json> first = grid.last;
  const std::vector<int> with = Grid::members(first[0]);
  for (size_t i = 0; i < 4; ++i) {
    const bool fails = std::count(with.begin(), with.end(), static_cast<int>(i)) > 0;
    grid.give(i, !fails, fails ? Json::array({{{"peer", with[1]}, {"why", "stalled"}}}) : Json::array());
  }
  grid.hear();
  for (size_t i = 0; i < 4; ++i) {
    const bool fails = std::count(with.begin(), with.end(), static_cast<int>(i)) > 0;
    EXPECT_EQ(grid.last[i].is_null(), !fails);
    if (fails) grid.give(i);
  }
  grid.hear();
  for (const Json& message : grid.last) EXPECT_EQ(message.at("phase"), 1);
}

}  // namespace
}  // namespace yoke::collab
