// Who is excluded for gradients that stay far from the others', and who is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "yoke/collab/test_meeting.h"

namespace yoke::collab {
namespace {

using ::testing::HasSubstr;
using testing::Json;
using testing::Room;

constexpr int kSteps = 10;  // in a row, until a peer is excluded

// Peers 0, 1, … that compute these samples of each batch.
struct Crowd : Room {
  explicit Crowd(std::vector<int64_t> each, Robust robust = Robust::kMedian)
      : Room(options_of(each, robust)), samples(std::move(each)) {
    fill(static_cast<int>(samples.size()));
  }
  static MeetingOptions options_of(const std::vector<int64_t>& each, Robust robust) {
    int64_t sum = 0;
    for (int64_t one : each) sum += one;
    MeetingOptions options = Room::options_of(sum);
    options.steps = 1000;
    options.robust = robust;
    return options;
  }

  // A step in which all say the same of each other: peer i has scores[i]. Returns the last replies.
  std::map<int, Json> step(const std::vector<double>& scores) {
    std::map<int, Json> replies;
    for (int i : here) replies[i] = work(i, samples[static_cast<size_t>(i)], epoch);
    for (int turn = 0; turn < 100; ++turn)
      for (int i : here) {
        const int64_t want = samples[static_cast<size_t>(i)];
        if (replies[i].is_null())
          replies[i] = reply_to(i);
        else if (replies[i].at("type") == "lease")
          replies[i] = done(i, replies[i].at("count"), want, epoch);
      }
    Json outliers = Json::array();
    for (size_t i = 0; i < scores.size(); ++i)
      outliers.push_back({{"peer", i}, {"score", scores[i]}, {"distance", scores[i] * typical}});
    for (int i : here) {
      EXPECT_EQ(replies[i].at("type"), "average") << i;
      meeting.request(i,
                      {{"type", "result"},
                       {"epoch", epoch},
                       {"attempt", replies[i].at("attempt")},
                       {"complete", true},
                       {"lost", Json::array()},
                       {"outliers", said_by(i, outliers)},
                       {"usual_size", 1},
                       {"received", Json::array()}},
                      now);
    }
    for (int i : here) replies[i] = reply_to(i);
    std::erase_if(here, [&](int i) { return replies[i].at("type") == "refused"; });
    ++epoch;
    return replies;
  }
  std::function<Json(int, const Json&)> said_by = [](int, const Json& outliers) { return outliers; };

  double typical = 1;  // distance of a gradient, where its size is 1
  std::vector<int64_t> samples;
  std::vector<int> here = [this] {
    std::vector<int> all;
    for (size_t i = 0; i < samples.size(); ++i) all.push_back(static_cast<int>(i));
    return all;
  }();
  int64_t epoch = 0;
};

TEST(Outliers, APeerThatStaysFarOutIsExcludedByName) {
  Crowd crowd({8, 8, 8, 8, 8});
  for (int i = 1; i < kSteps; ++i)
    EXPECT_EQ(crowd.step({1, 1, 0.9, 1.2, 60}).at(4).at("type"), "commit") << i;
  const std::map<int, Json> replies = crowd.step({1, 1, 0.9, 1.2, 60});
  EXPECT_THAT(replies.at(4).at("why"), HasSubstr("excluded from the run: for 10 steps its gradients"));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(replies.at(i).at("type"), "commit");
  const Json row = crowd.meeting.status(crowd.now).at("peers")[4];
  EXPECT_EQ(row.at("state"), "excluded");
  EXPECT_THAT(row.at("why_dropped"), HasSubstr("collab.robust = median"));
  EXPECT_EQ(crowd.meeting.present(), 4);
  // The others do its samples, and it cannot return under its name.
  EXPECT_EQ(crowd.step({1, 1, 1, 1}).at(0).at("type"), "commit");
  EXPECT_THAT(crowd.join(9, crowd.identities[4]).at("why"), HasSubstr("this peer is excluded"));
}

TEST(Outliers, WithoutARobustMethodNobodyIsExcluded) {
  Crowd crowd({8, 8, 8, 8, 8}, Robust::kNone);
  for (int i = 0; i < 3 * kSteps; ++i) EXPECT_EQ(crowd.step({1, 1, 1, 1, 1000}).at(4).at("type"), "commit");
}

TEST(Outliers, OneStepLikeTheOthersIsEnoughToBeBelieved) {
  Crowd crowd({8, 8, 8, 8, 8});
  for (int i = 0; i < 4 * kSteps; ++i)
    EXPECT_EQ(crowd.step({1, 1, 1, 1, i % kSteps == 0 ? 2.0 : 60.0}).at(4).at("type"), "commit");
}

TEST(Outliers, AGradientOfFewSamplesMayBeFartherOut) {
  Crowd crowd({16, 16, 16, 16, 1});  // four times the distance is in good faith
  for (int i = 0; i < 3 * kSteps; ++i) EXPECT_EQ(crowd.step({1, 1, 1, 1, 35}).at(4).at("type"), "commit");
  for (int i = 1; i < kSteps; ++i) crowd.step({1, 1, 1, 1, 50});
  EXPECT_EQ(crowd.step({1, 1, 1, 1, 50}).at(4).at("type"), "refused");
}

TEST(Outliers, UnequalDataBelowTheLimitIsNoReason) {
  Crowd crowd({8, 8, 8, 8, 8, 8});
  for (int i = 0; i < 5 * kSteps; ++i) {
    const std::map<int, Json> replies = crowd.step({0.3, 1, 1, 4, 6, 9});
    for (int peer = 0; peer < 6; ++peer) EXPECT_EQ(replies.at(peer).at("type"), "commit");
  }
}

// The others agree closely; it has learnt from other data, and its gradient is not larger than theirs were.
TEST(Outliers, OtherDataIsNoReasonHoweverCloselyTheOthersAgree) {
  Crowd crowd({8, 8, 8, 8, 8});
  crowd.step({1, 1, 1, 1, 1});
  crowd.typical = 0.01;
  for (int i = 0; i < 5 * kSteps; ++i) EXPECT_EQ(crowd.step({1, 1, 1, 1, 100}).at(4).at("type"), "commit");
}

// Half of the peers against the other half: who lies is not known.
TEST(Outliers, WithoutAMajorityNobodyIsExcluded) {
  Crowd crowd({8, 8, 8, 8});
  Crowd three({8, 8, 8});
  for (int i = 0; i < 2 * kSteps; ++i) {
    EXPECT_EQ(crowd.step({1, 1, 60, 60}).at(3).at("type"), "commit");
    EXPECT_EQ(three.step({1, 1, 60}).at(2).at("type"), "commit");
  }
}

TEST(Outliers, OneReducerAloneCannotAccuse) {
  Crowd crowd({8, 8, 8, 8, 8});
  crowd.said_by = [](int by, const Json&) {
    Json all = Json::array();
    for (int i = 0; i < 5; ++i) {
      const double score = by == 4 && i == 2 ? 1e9 : 1.0;
      all.push_back({{"peer", i}, {"score", score}, {"distance", score}});
    }
    return all;
  };
  for (int i = 0; i < 2 * kSteps; ++i) EXPECT_EQ(crowd.step({1, 1, 1, 1, 1}).at(2).at("type"), "commit");
}

}  // namespace
}  // namespace yoke::collab
