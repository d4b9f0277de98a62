#include "yoke/cluster/session_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "yoke/base/error.h"

namespace yoke::cluster {
namespace {

using control::decode;
using control::encode;

TEST(ControlMessage, CarriesAnyBytesAsValue) {
  std::string value("\0\xff\n\"", 4);
  control::Note note = decode(encode({{"verb", "put"}}, value));
  EXPECT_EQ(note.head["verb"], "put");
  EXPECT_EQ(note.value, value);
}

TEST(ControlMessage, SurvivesTextsThatAreNotUtf8) {
  EXPECT_NO_THROW(decode(encode({{"host", "\xff\xfe"}})));
}

TEST(ControlMessage, RefusesOtherBytes) {
  EXPECT_THROW(decode({}), CommError);
  std::vector<std::byte> bytes = encode({{"a", 1}});
  bytes.resize(bytes.size() - 1);
  EXPECT_THROW(decode(bytes), CommError);
  bytes = encode(nlohmann::json::array({1, 2}));
  EXPECT_THROW(decode(bytes), CommError);
  bytes = encode({{"a", 1}});
  bytes[4] = std::byte{'['};
  EXPECT_THROW(decode(bytes), CommError);
  std::string deep = std::string(100000, '[');
  std::vector<std::byte> nested(4 + deep.size());
  auto length = static_cast<uint32_t>(deep.size());
  std::memcpy(nested.data(), &length, 4);
  std::memcpy(nested.data() + 4, deep.data(), deep.size());
  EXPECT_THROW(decode(nested), CommError);
}

TEST(ControlMessage, ChecksFields) {
  nlohmann::json head = {{"n", 7}, {"s", "text"}, {"big", UINT64_MAX}, {"real", 1.5}};
  EXPECT_EQ(control::number(head, "n", 0, 7), 7);
  EXPECT_THROW(control::number(head, "n", 0, 6), CommError);
  EXPECT_THROW(control::number(head, "s", 0, 6), CommError);
  EXPECT_THROW(control::number(head, "none", 0, 6), CommError);
  EXPECT_THROW(control::number(head, "big", INT64_MIN, INT64_MAX), CommError);
  EXPECT_THROW(control::number(head, "real", 0, 6), CommError);
  EXPECT_EQ(control::text(head, "s", 4), "text");
  EXPECT_THROW(control::text(head, "s", 3), CommError);
  EXPECT_THROW(control::text(head, "n", 3), CommError);
}

TEST(ControlMessage, MembersAndReportsReadBack) {
  Member member{3, "node1", "m", 17, "10.0.0.1:5", "RANK=3"};
  Member again = control::read_member(control::to_json(member));
  EXPECT_EQ(control::to_json(again), control::to_json(member));
  FailureReport report{2, "node1", 17, 9, "killed", "what", "next"};
  EXPECT_EQ(control::to_json(control::read_report(control::to_json(report), 3)), control::to_json(report));
  EXPECT_THROW(control::read_report(control::to_json(report), 2), CommError) << "rank 2 of 2";
  EXPECT_THROW(control::read_report({{"rank", 1}}, 3), CommError);
  EXPECT_THROW(control::read_progress({}), CommError);
  EXPECT_THROW(control::read_progress(encode(control::Progress{0, -2})), CommError);
}

TEST(ControlMessage, ListsOfMembersAreWholeAndInOrder) {
  nlohmann::json list = nlohmann::json::array();
  for (int rank = 0; rank < 3; ++rank)
    list.push_back(control::to_json(Member{rank, "node", "m", 17, "10.0.0.1:5", "RANK"}));
  EXPECT_EQ(control::read_members({{"members", list}}, 3).size(), 3u);
  EXPECT_THROW(control::read_members({{"members", list}}, 4), CommError);
  EXPECT_THROW(control::read_members({{"members", 3}}, 3), CommError);
  std::swap(list[0], list[1]);
  EXPECT_THROW(control::read_members({{"members", list}}, 3), CommError);
  list[1] = 7;
  EXPECT_THROW(control::read_members({{"members", list}}, 3), CommError);
}

TEST(ControlMessage, AnEpochHasMembersAndARankAmongThem) {
  Epoch epoch{3, 1, {}, "rank 2 was killed", 2, 1, true};
  for (int rank = 0; rank < 2; ++rank) {
    epoch.members.push_back({rank, "node", "m", 17, "10.0.0.1:5", "RANK"});
    epoch.members.back().seat = 2 * rank;
  }
  nlohmann::json head = control::to_json(epoch);
  Epoch again = control::read_epoch(head);
  EXPECT_EQ(control::to_json(again), head);
  EXPECT_EQ(again.members[1].seat, 2);
  for (auto [key, wrong] : std::map<std::string, nlohmann::json>{{"rank", 2},
                                                                 {"epoch", -1},
                                                                 {"members", nlohmann::json::array()},
                                                                 {"losses", "2"},
                                                                 {"elastic", 1},
                                                                 {"in_doubt", "no"}}) {
    nlohmann::json other = head;
    other[key] = wrong;
    EXPECT_THROW(control::read_epoch(other), CommError) << key;
  }
}

TEST(ControlMessage, LinksAreOfTwoRanksInOrder) {
  const std::vector<std::pair<int, int>> links = {{0, 2}, {1, 2}};
  EXPECT_EQ(control::read_links({{"links", control::to_json(links)}}, "links", 3), links);
  for (const char* wrong : {"[[0, 3]]", "[[1, 1]]", "[[2, 1]]", "[[0]]", "[0, 1]", "[[0, \"1\"]]", "3"})
    EXPECT_THROW(control::read_links({{"links", nlohmann::json::parse(wrong)}}, "links", 3), CommError)
        << wrong;
}

TEST(ControlMessage, ReadsFlagsSecondsAndRanks) {
  nlohmann::json head = {{"yes", true},    {"one", 1},   {"half", 0.5},
                         {"list", {0, 2}}, {"far", {3}}, {"text", {"0"}}};
  EXPECT_TRUE(control::flag(head, "yes"));
  EXPECT_THROW(control::flag(head, "one"), CommError);
  EXPECT_EQ(control::seconds(head, "half"), 0.5);
  EXPECT_THROW(control::seconds(head, "yes"), CommError);
  for (double wrong : {0.0, -1.0, 1e9, std::nan("")})
    EXPECT_THROW(control::seconds({{"s", wrong}}, "s"), CommError) << wrong;
  EXPECT_EQ(control::ranks(head, "list", 3), (std::vector<int>{0, 2}));
  for (const char* wrong : {"yes", "far", "text", "none"})
    EXPECT_THROW(control::ranks(head, wrong, 3), CommError) << wrong;
}

TEST(ControlMessage, BracketsInTextsAreNoDepth) {
  EXPECT_EQ(decode(encode({{"what", "\"[[[[[[[[[[[[[[ \\"}})).head["what"], "\"[[[[[[[[[[[[[[ \\");
}

TEST(RankList, IsShort) {
  EXPECT_EQ(control::list_ranks({3, 7}), "3, 7");
  EXPECT_EQ(control::list_ranks({0, 1, 2, 3, 9}), "0-3, 9");
  EXPECT_EQ(control::list_ranks({4, 5}), "4, 5");
  EXPECT_EQ(control::list_ranks({}), "");
}

}  // namespace
}  // namespace yoke::cluster
