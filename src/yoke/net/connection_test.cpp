#include "yoke/net/connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "yoke/net/test_pair.h"

namespace yoke::net {
namespace {

using testing::connected_pair;
using ::testing::HasSubstr;
using testing::TappedPair;

constexpr Protection kAll[] = {Protection::kIntegrity, Protection::kEncrypted, Protection::kNone};

std::vector<std::byte> pattern(size_t bytes, unsigned start) {
  std::vector<std::byte> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>((i * 131 + start) >> 2);
  return data;
}

FrameHeader message(uint64_t context) {
  FrameHeader header;
  header.type = FrameType::kMessage;
  header.context = context;
  return header;
}

// Moves what can be moved on both ends until the receiver has the frame.
std::vector<std::byte> carry(Connection& from, Connection& to, FrameHeader& header) {
  std::vector<std::byte> payload;
  Deadline deadline = Deadline::after(20);
  while (!deadline.passed()) {
    from.flush();
    const FrameHeader* next = to.next_header();
    if (next == nullptr) continue;
    header = *next;
    payload.resize(next->length);
    if (to.receive(payload)) return payload;
  }
  throw CommError("nothing came");
}

class Connections : public ::testing::TestWithParam<Protection> {};

TEST_P(Connections, CarryFramesOfAnySizeBothWays) {
  auto pair = connected_pair(GetParam());
  uint64_t context = 0;
  uint64_t total = 0;
  for (size_t bytes :
       {0, 1, 63, 64, 129, 16383, 16384, 16385, 65535, 65536, 65537, 131072, 262145, 1 << 20, 3000001}) {
    for (auto [from, to] :
         {std::pair{pair.caller.get(), pair.listener.get()}, {pair.listener.get(), pair.caller.get()}}) {
      auto sent = pattern(bytes, static_cast<unsigned>(bytes));
      from->post(message(++context), sent);
      FrameHeader header;
      auto got = carry(*from, *to, header);
      EXPECT_EQ(header.context, context);
      EXPECT_EQ(header.generation, 3u);
      ASSERT_TRUE(got == sent) << bytes;
    }
    total += bytes;
  }
  EXPECT_EQ(pair.caller->bytes_sent(), total);
  EXPECT_GT(pair.caller->wire_bytes_sent(), total + 15 * kFrameHeaderBytes - 1);
  EXPECT_FALSE(pair.caller->has_unsent());
}

TEST_P(Connections, CarryManySmallFramesInOrder) {
  auto pair = connected_pair(GetParam());
  constexpr uint64_t kFrames = 3000;
  for (uint64_t i = 0; i < kFrames; ++i) {
    auto payload = pattern(i % 300, static_cast<unsigned>(i));
    pair.caller->post_copy(message(i), payload);
  }
  EXPECT_EQ(pair.caller->unsent_frames(), kFrames);
  for (uint64_t i = 0; i < kFrames; ++i) {
    FrameHeader header;
    auto got = carry(*pair.caller, *pair.listener, header);
    ASSERT_EQ(header.context, i);
    ASSERT_EQ(header.sequence, i);
    ASSERT_TRUE(got == pattern(i % 300, static_cast<unsigned>(i))) << i;
  }
}

TEST_P(Connections, KeepShowingTheHeaderUntilThePayloadIsThere) {
  TappedPair pair(GetParam());
  auto payload = pattern(100000, 1);
  auto wire = pair.capture(message(9), payload);
  std::vector<std::byte> into(payload.size());
  // Byte by byte at the start, then in odd pieces.
  size_t at = 0;
  bool complete = false;
  while (at < wire.size()) {
    size_t bytes = std::min<size_t>(at < 80 ? 1 : 7777, wire.size() - at);
    pair.inject(Bytes(wire).subspan(at, bytes));
    at += bytes;
    const FrameHeader* header = pair.listener().next_header();
    EXPECT_EQ(header != nullptr, at >= kFrameHeaderBytes);
    if (header == nullptr) continue;
    EXPECT_EQ(header->context, 9u);
    EXPECT_EQ(complete = pair.listener().receive(into), at == wire.size());
  }
  EXPECT_TRUE(complete);
  EXPECT_TRUE(into == payload);
}

// What the listener says to those bytes, twice.
std::string complaint(TappedPair& pair, const std::vector<std::vector<std::byte>>& frames) {
  std::string first;
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      if (attempt == 0)
        for (const auto& frame : frames) pair.inject(frame);
      for (size_t i = 0; i <= frames.size(); ++i) {
        const FrameHeader* header = pair.listener().next_header();
        if (header == nullptr) break;
        std::vector<std::byte> into(header->length);
        if (!pair.listener().receive(into)) break;
      }
    } catch (const CommError& error) {
      if (attempt == 1) {
        EXPECT_EQ(first, error.what());
      }
      first = error.what();
    }
  }
  return first;
}

TEST_P(Connections, RejectEveryFlippedBit) {
  // A fresh connection for each place: header, first and last block of the payload, tags.
  const size_t payload_bytes = 66000;
  size_t wire_bytes = 0;
  {
    TappedPair pair(GetParam());
    wire_bytes = pair.capture(message(1), pattern(payload_bytes, 3)).size();
  }
  std::vector<size_t> places(kFrameHeaderBytes);
  std::iota(places.begin(), places.end(), 0);
  // Without protection payloads travel unchecked.
  if (GetParam() != Protection::kNone)
    for (size_t place : {size_t{64}, size_t{1000}, size_t{65599}, size_t{65600}, size_t{65615},
                         wire_bytes - 17, wire_bytes - 1})
      places.push_back(place);
  for (size_t place : places) {
    TappedPair pair(GetParam());
    auto wire = pair.capture(message(1), pattern(payload_bytes, 3));
    wire[place] ^= std::byte{4};
    // A length made longer is caught by the MAC before anything of that length is waited for.
    std::string text = complaint(pair, {wire});
    EXPECT_THAT(text, HasSubstr("rejected")) << "byte " << place;
    EXPECT_THAT(text, HasSubstr("rank 0")) << "byte " << place;
  }
}

TEST_P(Connections, RejectReplaysDuplicatesReorderingAndGaps) {
  auto payload = pattern(200, 1);
  {
    TappedPair pair(GetParam());
    auto first = pair.capture(message(1), payload);
    EXPECT_THAT(complaint(pair, {first, first}), HasSubstr("rejected frame 0, expected 1"));
  }
  {
    TappedPair pair(GetParam());
    auto first = pair.capture(message(1), payload);
    auto second = pair.capture(message(2), payload);
    EXPECT_THAT(complaint(pair, {second, first}), HasSubstr("rejected frame 1, expected 0"));
  }
  {
    TappedPair pair(GetParam());
    auto first = pair.capture(message(1), payload);
    pair.capture(message(2), payload);
    auto third = pair.capture(message(3), payload);
    EXPECT_THAT(complaint(pair, {first, third}), HasSubstr("rejected frame 2, expected 1"));
  }
}

TEST_P(Connections, SayThatThePeerClosed) {
  TappedPair pair(GetParam());
  auto wire = pair.capture(message(1), pattern(1000, 1));
  wire.resize(500);
  pair.inject(wire);
  pair.close_far();
  EXPECT_THAT(complaint(pair, {}), HasSubstr("closed by the peer"));
}

INSTANTIATE_TEST_SUITE_P(EveryProtection, Connections, ::testing::ValuesIn(kAll),
                         [](const auto& one) { return std::string(to_string(one.param)); });

TEST(Connection, RejectsSwappedPayloads) {
  for (auto protection : {Protection::kIntegrity, Protection::kEncrypted}) {
    TappedPair pair(protection);
    auto first = pair.capture(message(1), pattern(200, 1));
    auto second = pair.capture(message(2), pattern(200, 77));
    std::swap_ranges(first.begin() + kFrameHeaderBytes, first.end(), second.begin() + kFrameHeaderBytes);
    EXPECT_THAT(complaint(pair, {first, second}), HasSubstr("rejected a payload"));
  }
}

TEST(Connection, RejectsFramesOfAnotherConnectionAndItsOwnReflected) {
  for (auto protection : {Protection::kIntegrity, Protection::kEncrypted}) {
    auto payload = pattern(200, 1);
    TappedPair one(protection), other(protection);
    auto foreign = other.capture(message(1), payload);
    EXPECT_THAT(complaint(one, {foreign}), HasSubstr("wrong MAC"));
    other.inject_to_caller(foreign);
    EXPECT_THROW(other.caller().next_header(), CommError);
  }
}

TEST(Connection, HidesThePayloadOnlyWhenEncrypted) {
  std::string text = "a gradient nobody else should see";
  auto shows = [&](Protection protection) {
    TappedPair pair(protection);
    auto wire = pair.capture(message(1), as_bytes(text));
    return std::string(reinterpret_cast<const char*>(wire.data()), wire.size()).find(text) !=
           std::string::npos;
  };
  EXPECT_TRUE(shows(Protection::kIntegrity));
  EXPECT_FALSE(shows(Protection::kEncrypted));
}

TEST(Connection, WaitsNoLongerThanAllowed) {
  auto pair = connected_pair();
  FrameHeader header;
  EXPECT_THROW(pair.listener->receive_frame(header, Deadline::after(0.05)), CommError);
  // Nobody reads: the socket fills up.
  std::vector<std::byte> large(8 << 20);
  pair.caller->post(message(1), large);
  EXPECT_THROW(pair.caller->flush_all(Deadline::after(0.05)), CommError);
}

TEST(Connection, SendingToOneWhoIsGoneIsAnErrorThatNamesHim) {
  auto pair = testing::shake_hands(testing::ticket_of(), testing::ticket_of(), {0, "test", 0, 0, 6});
  pair.listener.reset();
  pair.caller->post_copy(message(1), pattern(10, 1));
  try {
    pair.caller->flush();
    FAIL() << "sent to nobody";
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 6"));
    EXPECT_THAT(error.what(), HasSubstr("closed"));
  }
}

}  // namespace
}  // namespace yoke::net
