#include "yoke/ps/sparse/compress.h"

#include <gtest/gtest.h>

#include <random>

#include "yoke/base/error.h"
#include "yoke/ps/sparse/test_tables.h"

namespace yoke::ps::sparse {
namespace {

TEST(SparseCompress, GivesBackWhatItGot) {
  std::vector<float> values(10'000);
  for (size_t i = 0; i < values.size(); i += 40) values[i] = static_cast<float>(i);
  const std::vector<std::byte> frame = compress(bytes_of(values));
  ASSERT_FALSE(frame.empty());
  EXPECT_LT(frame.size() * 10, values.size() * sizeof(float)) << "most are zeros";
  std::vector<float> back(values.size());
  decompress(frame, memory_of(back));
  EXPECT_EQ(back, values);
}

TEST(SparseCompress, LeavesShortAndRandomValuesAlone) {
  EXPECT_TRUE(compress({}).empty());
  EXPECT_TRUE(compress(bytes_of(std::vector<float>{1})).empty());
  std::mt19937_64 random(1);
  std::vector<uint64_t> bits(1000);
  for (uint64_t& one : bits) one = random();
  EXPECT_TRUE(compress(bytes_of(bits)).empty());
}

TEST(SparseCompress, RefusesFramesOfAnotherSizeAndDamage) {
  const std::vector<float> zeros(1000);
  std::vector<std::byte> frame = compress(bytes_of(zeros));
  std::vector<float> small(999), large(1001), same(1000);
  EXPECT_THROW(decompress(frame, memory_of(small)), CommError);
  EXPECT_THROW(decompress(frame, memory_of(large)), CommError);
  for (size_t i = 0; i < frame.size(); ++i) {
    std::vector<std::byte> damaged(frame.begin(), frame.begin() + static_cast<ptrdiff_t>(i));
    EXPECT_THROW(decompress(damaged, memory_of(same)), CommError) << i << " bytes";
  }
}

// Pushes, pulls and rounds, alone and with the other filters.
TEST(SparseCompress, ChangesNothingButTheBytesOnTheWire) {
  std::vector<Key> keys;
  for (Key key = 0; key < 2000; ++key) keys.push_back(7 * key);
  std::vector<float> gradient(keys.size());
  for (size_t i = 0; i < gradient.size(); i += 25) gradient[i] = 1;
  for (int fixed_point : {0, 1}) {
    Traffic plain, packed;
    for (bool compress : {false, true}) {
      TableShop shop{.workers = 1, .servers = 2};
      shop.client.tables = {{.width = 1, .keys = 20'000}};
      shop.client.compress = compress;
      shop.client.fixed_point = fixed_point;
      shop.run("tcp", [&](Client& client, int) {
        std::vector<float> seen(keys.size());
        client.wait(client.push(0, keys, bytes_of(gradient)));
        client.wait(client.push_round(0, {0, 20'000}, 1, keys, bytes_of(gradient)));
        client.wait(client.pull(0, keys, memory_of(seen)));
        for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(seen[i], 2 * gradient[i]);
        client.wait(client.pull_round(0, {0, 20'000}, 1, keys, memory_of(seen)));
        for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(seen[i], 2 * gradient[i]);
        (compress ? packed : plain) = client.traffic();
      });
    }
    EXPECT_EQ(plain.packed_saved, 0);
    EXPECT_GT(packed.packed_saved, 0);
    EXPECT_EQ(packed.sent + packed.received + packed.packed_saved, plain.sent + plain.received);
    EXPECT_LT(packed.received * 10, plain.received);
  }
}

TEST(SparseCompress, DamagedValuesAreRefusedAndNotApplied) {
  TableShop shop{.workers = 1, .servers = 1};
  shop.client.tables = {{.width = 1, .keys = 100}};
  shop.run_messengers("shm", [](comm::Messenger& messenger, const ClientOptions& options, int) {
    Client client(messenger, options);
    const std::vector<Key> keys = {1};
    comm::Message message;
    message.kind = kPushTable;
    message.set_head(PushTableHead{.table = 0, .flags = kCompressed, .keys = 1, .sequence = 1});
    const std::vector<Key> payload = {1, 0x1234};
    message.payload = bytes_of(payload);
    EXPECT_THROW(messenger.ask(1, message, {}, Deadline::after(60)).get(), CommError);
    std::vector<float> seen(1);
    client.wait(client.pull(0, keys, memory_of(seen)));
    EXPECT_EQ(seen[0], 0);
  });
}

}  // namespace
}  // namespace yoke::ps::sparse
