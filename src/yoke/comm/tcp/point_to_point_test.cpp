#include "yoke/comm/tcp/point_to_point.h"

#include <gmock/gmock.h>

#include <numeric>

#include "yoke/comm/tcp/test_tcp_ranks.h"

namespace yoke::comm::tcp {
namespace {

using ::testing::HasSubstr;

// gmock's Each takes a minute for these sizes.
template <class T>
bool all_are(const std::vector<T>& data, double value) {
  return std::all_of(data.begin(), data.end(), [&](T x) { return static_cast<double>(x) == value; });
}

TEST(TcpPointToPoint, BothSidesSendEightMegabytesAtOnce) {
  TcpRanks(2).run([](TestRank& rank) {
    std::vector<float> out(2 << 20, static_cast<float>(rank.rank)), in(2 << 20, -1);
    int peer = 1 - rank.rank;
    rank.complete({rank.transfer(true, out, peer, 5), rank.transfer(false, in, peer, 5)});
    EXPECT_TRUE(all_are(in, static_cast<double>(peer)));
    EXPECT_EQ(rank.backend->counters().bytes_sent, 8 << 20);
    EXPECT_EQ(rank.backend->counters().bytes_received, 8 << 20);
    EXPECT_EQ(rank.backend->counters().messages_sent, 1);
  });
}

TEST(TcpPointToPoint, TagsMeetInAnyOrder) {
  TcpRanks(2).run([](TestRank& rank) {
    std::vector<int64_t> sizes{0, 1, 500, 3000, 200'000, 1'000'000};
    std::vector<std::vector<int64_t>> data;
    std::vector<Transfer> sends;
    for (size_t tag = 0; tag < sizes.size(); ++tag) {
      data.emplace_back(static_cast<size_t>(sizes[tag]), rank.rank == 0 ? static_cast<int64_t>(tag) : -1);
      if (rank.rank == 0) sends.push_back(rank.transfer(true, data.back(), 1, static_cast<int>(tag)));
    }
    if (rank.rank == 0) return rank.complete(std::move(sends));
    for (size_t tag = sizes.size(); tag-- > 0;) {
      rank.complete({rank.transfer(false, data[tag], 0, static_cast<int>(tag))});
      EXPECT_TRUE(all_are(data[tag], static_cast<double>(tag)));
    }
  });
}

// A sender that describes more than its fingerprint says: what was set aside does not fit.
TEST(TcpPointToPoint, AMessageThatIsNotAsLargeAsAgreedIsAMismatch) {
  TcpRanks(2).run([](TestRank& rank) {
    std::vector<int64_t> some(10, 1), more(100, 2), other(1, 3);
    if (rank.rank == 0) {
      Transfer lying = rank.transfer(true, more, 1, 7);
      lying.fingerprint = rank.transfer(true, some, 1, 7).fingerprint;
      return rank.complete({lying, rank.transfer(true, other, 1, 8)});
    }
    rank.complete({rank.transfer(false, other, 0, 8)});
    try {
      rank.complete({rank.transfer(false, some, 0, 7)});
      ADD_FAILURE() << "not seen";
    } catch (const MismatchError& error) {
      EXPECT_THAT(error.what(), HasSubstr("[100]"));
    }
    EXPECT_TRUE(all_are(some, 1));
  });
}

// Numbers that name nothing are shown, not looked up.
TEST(TcpPointToPoint, AnUnknownTypeIsAMismatchLikeAnyOther) {
  TcpRanks(2).run([](TestRank& rank) {
    std::vector<int64_t> data(10, 1);
    Transfer transfer = rank.transfer(rank.rank == 0, data, 1 - rank.rank, 7);
    if (rank.rank == 0) {
      transfer.descriptor.type = static_cast<DataType>(200);
      transfer.descriptor.op = 33;
      transfer.fingerprint = transfer.descriptor.fingerprint();
      return rank.complete({transfer});
    }
    try {
      rank.complete({transfer});
      ADD_FAILURE() << "not seen";
    } catch (const MismatchError& error) {
      EXPECT_THAT(error.what(), HasSubstr("unknown operation 33 #1 of unknown type 200 [10]"));
    }
  });
}

TEST(TcpPointToPoint, MessagesOfOneTagKeepTheirOrder) {
  TcpRanks(3).run([](TestRank& rank) {
    int next = (rank.rank + 1) % 3, previous = (rank.rank + 2) % 3;
    for (uint64_t i = 1; i <= 200; ++i) {
      std::vector<int64_t> out(i * 17 % 2000, static_cast<int64_t>(i)), in(out.size(), -1);
      rank.complete({rank.transfer(true, out, next, 9, i), rank.transfer(false, in, previous, 9, i)});
      ASSERT_TRUE(all_are(in, static_cast<double>(i)));
    }
  });
}

TEST(TcpPointToPoint, MoreThanThereIsRoomForWaitsForItsReceive) {
  TcpRanks(2).run([](TestRank& rank) {
    std::vector<uint8_t> large(70 << 20, rank.rank == 0 ? 7 : 0), small(10, rank.rank == 0 ? 8 : 0);
    if (rank.rank == 0) {
      rank.complete({rank.transfer(true, small, 1, 1), rank.transfer(true, large, 1, 2)});
      rank.complete({rank.transfer(true, small, 1, 1, 2)});
      return;
    }
    rank.complete({rank.transfer(false, small, 0, 1)});
    // Nothing of tag 3 is coming: the large message is met and left where it is.
    std::vector<uint8_t> none(1);
    Transfer never = rank.transfer(false, none, 0, 3);
    Transfer* waiting[] = {&never};
    for (int i = 0; i < 50; ++i) {
      EXPECT_FALSE(rank.backend->advance(never));
      rank.backend->wait_for(waiting, Deadline::after(0.002));
    }
    rank.complete({rank.transfer(false, large, 0, 2)});
    EXPECT_TRUE(all_are(large, 7));
    rank.complete({rank.transfer(false, small, 0, 1, 2)});
    EXPECT_TRUE(all_are(small, 8));
  });
}

TEST(TcpPointToPoint, AnotherSizeThanSentIsSeen) {
  TcpRanks(2).run([](TestRank& rank) {
    std::vector<float> data(rank.rank == 0 ? 10 : 11);
    if (rank.rank == 0) return rank.complete({rank.transfer(true, data, 1, 0)});
    try {
      rank.complete({rank.transfer(false, data, 0, 0)});
      FAIL() << "not seen";
    } catch (const MismatchError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 0 called send"));
      EXPECT_THAT(error.what(), HasSubstr("[11]"));
    }
  });
}

TEST(TcpPointToPoint, ALostPeerIsNamed) {
  TcpRanks(2).run([](TestRank& rank) {
    std::vector<float> data(10);
    if (rank.rank == 0) {
      rank.complete({rank.transfer(true, data, 1, 0)});
      return;
    }
    rank.complete({rank.transfer(false, data, 0, 0)});
    try {
      rank.complete({rank.transfer(false, data, 0, 0, 2)});
      FAIL() << "not seen";
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), HasSubstr("lost rank 0 on host0"));
    }
  });
}

TEST(TcpPointToPoint, AWaitIsEndedFromAnotherThread) {
  TcpRanks(2).run([](TestRank& rank) {
    if (rank.rank == 1) return;
    std::jthread waker([&] { rank.backend->wake(); });
    Deadline limit = Deadline::after(10);
    rank.backend->wait_for({}, limit);
    EXPECT_FALSE(limit.passed());
    waker.join();
  });
}

TEST(TcpPointToPoint, RunsBesideCollectives) {
  TcpRanks(2).run([](TestRank& rank) {
    std::vector<float> out(500'000, 1), in(500'000, 0);
    std::jthread transfers([&] {
      for (uint64_t i = 1; i <= 20; ++i)
        rank.complete(
            {rank.transfer(true, out, 1 - rank.rank, 3, i), rank.transfer(false, in, 1 - rank.rank, 3, i)});
    });
    std::vector<double> data(100'000, 1);
    for (int i = 0; i < 10; ++i) rank.run(rank.check.all_reduce(data, ReduceOp::kSum));
    transfers.join();
    EXPECT_TRUE(all_are(data, 1024.0));
    EXPECT_TRUE(all_are(in, 1.0));
  });
}

}  // namespace
}  // namespace yoke::comm::tcp
