#include "yoke/comm/shared/transfers.h"

#include <numeric>

#include "yoke/comm/shared/ranks_for_tests.h"

namespace yoke::comm {
namespace {

using testing::Rank;

Transfer transfer(Rank& rank, bool is_send, std::vector<int32_t>& data, int peer, int tag,
                  uint64_t number = 1) {
  Transfer made = rank.ask().transfer(is_send, data, peer, tag);
  made.descriptor.number = number;
  made.fingerprint = made.descriptor.fingerprint();
  return made;
}

// Advances all of them until all are complete; throws after half a minute.
void finish(Rank& rank, std::vector<Transfer*> transfers) {
  Deadline deadline = Deadline::after(30);
  while (!transfers.empty()) {
    std::erase_if(transfers, [&](Transfer* one) { return rank.backend.advance(*one); });
    if (deadline.passed()) throw CommError("{} transfers are not complete", transfers.size());
    if (!transfers.empty()) rank.backend.wait_for(transfers, deadline);
  }
}

std::vector<int32_t> numbers(size_t count, int32_t first) {
  std::vector<int32_t> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

void both_ways(Rank& rank) {
  int peer = 1 - rank.rank;
  for (size_t count : {0u, 1u, 4095u, 4096u, 4097u, 1000003u}) {
    std::vector<int32_t> out = numbers(count, rank.rank * 1000), in(count, -1);
    Transfer send = transfer(rank, true, out, peer, 3), receive = transfer(rank, false, in, peer, 3);
    finish(rank, {&send, &receive});
    EXPECT_EQ(in, numbers(count, peer * 1000)) << count;
  }
}

TEST(Transfers, CarryMessagesOfEverySizeBothWays) {
  testing::run_local(2, both_ways);
  testing::run_shm(2, both_ways);
}

void from_shared_memory(Rank& rank) {
  constexpr size_t kCount = 3000001;
  Memory memory = rank.backend.allocate(kCount * 4);
  auto* data = static_cast<int32_t*>(memory.data.get());
  std::iota(data, data + kCount, rank.rank);
  int next = (rank.rank + 1) % rank.size, before = (rank.rank + rank.size - 1) % rank.size;
  std::vector<int32_t> in(kCount);
  Transfer receive = transfer(rank, false, in, before, 9);
  Transfer send = rank.ask().transfer(true, Buffer(data, kCount, DataType::kInt32), next, 9);
  send.descriptor.number = 1;
  send.fingerprint = send.descriptor.fingerprint();
  finish(rank, {&send, &receive});
  EXPECT_EQ(in, numbers(kCount, before));
  Counters moved = rank.backend.counters();
  EXPECT_EQ(moved.bytes_sent, static_cast<int64_t>(kCount * 4));
  EXPECT_EQ(moved.bytes_received, static_cast<int64_t>(kCount * 4));
  EXPECT_EQ(moved.messages_sent, 1);
}

TEST(Transfers, GoRoundInARingFromSharedMemory) {
  testing::run_local(3, from_shared_memory);
  testing::run_shm(3, from_shared_memory);
}

// The receiver takes the tags in the opposite order of the sender, large and small mixed.
void crossed_tags(Rank& rank) {
  constexpr int kTags = 40;
  std::vector<std::vector<int32_t>> data;
  std::vector<Transfer> transfers;
  std::vector<Transfer*> all;
  auto count_of = [](int tag) { return tag % 5 == 0 ? 100000u : static_cast<unsigned>(100 * tag); };
  for (int tag = 0; tag < kTags; ++tag)
    data.push_back(rank.rank == 0 ? numbers(count_of(tag), tag) : std::vector<int32_t>(count_of(tag)));
  for (int tag = 0; tag < kTags; ++tag)
    transfers.push_back(transfer(rank, rank.rank == 0, data[static_cast<size_t>(tag)], 1 - rank.rank, tag));
  for (Transfer& one : transfers) all.push_back(&one);
  if (rank.rank == 0) return finish(rank, all);
  for (int tag = kTags - 1; tag >= 0; --tag) finish(rank, {all[static_cast<size_t>(tag)]});
  for (int tag = 0; tag < kTags; ++tag)
    EXPECT_EQ(data[static_cast<size_t>(tag)], numbers(count_of(tag), tag)) << tag;
}

TEST(Transfers, OfDifferentTagsDoNotHoldEachOtherUp) {
  testing::run_local(2, crossed_tags);
  testing::run_shm(2, crossed_tags);
}

void many_of_one_tag(Rank& rank) {
  for (uint64_t i = 1; i <= 2000; ++i) {
    std::vector<int32_t> data(1 + i % 300, rank.rank == 0 ? static_cast<int32_t>(i) : -1);
    Transfer one = transfer(rank, rank.rank == 0, data, 1 - rank.rank, 0, i);
    finish(rank, {&one});
    ASSERT_EQ(data.back(), static_cast<int32_t>(i));
  }
}

TEST(Transfers, OfOneTagArriveInOrderAndWaitForRoom) {
  testing::run_local(2, many_of_one_tag);
  testing::run_shm(2, many_of_one_tag);
}

void disagree(Rank& rank, size_t sent, size_t received) {
  std::vector<int32_t> data(rank.rank == 0 ? sent : received);
  Transfer one = transfer(rank, rank.rank == 0, data, 1 - rank.rank, 5);
  bool small = sent * 4 <= 16384;
  if (rank.rank == 0 && small) return finish(rank, {&one});  // gone before anybody could object
  try {
    finish(rank, {&one});
    ADD_FAILURE() << "rank " << rank.rank << " noticed nothing";
  } catch (const MismatchError& error) {
    std::string text = error.what();
    EXPECT_NE(text.find(std::to_string(sent)), std::string::npos) << text;
    EXPECT_NE(text.find(std::to_string(received)), std::string::npos) << text;
  }
}

TEST(Transfers, OfDifferentSizesAreAnErrorThatShowsBoth) {
  for (auto [sent, received] : {std::pair<size_t, size_t>{10, 11}, {50000, 60000}, {50000, 7}, {8, 60001}}) {
    testing::run_local(2, [sent = sent, received = received](Rank& rank) { disagree(rank, sent, received); });
    testing::run_shm(2, [sent = sent, received = received](Rank& rank) { disagree(rank, sent, received); });
  }
}

TEST(Transfers, WaitEndsByWakeFailureAndDeadline) {
  testing::run_local(2, [](Rank& rank) {
    if (rank.rank == 1) return;
    std::vector<int32_t> data(4);
    Transfer receive = transfer(rank, false, data, 1, 0);
    EXPECT_FALSE(rank.backend.advance(receive));
    std::vector<Transfer*> one = {&receive};
    rank.backend.wait_for(one, Deadline::after(0.01));
    std::jthread waker([&] { rank.backend.wake(); });
    rank.backend.wait_for(one, Deadline::after(30));
    waker.join();
    rank.failure.raise({.rank = 1, .what = "rank 1 is gone"});
    rank.backend.wait_for(one, Deadline::after(30));
    EXPECT_THROW(rank.backend.advance(receive), CommError);
  });
}

}  // namespace
}  // namespace yoke::comm
