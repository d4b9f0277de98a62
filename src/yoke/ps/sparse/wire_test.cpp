// Damaged messages: each is refused with a text that names its sender, and nothing is applied.
#include "yoke/ps/sparse/wire.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "yoke/ps/messages.h"
#include "yoke/ps/server.h"
#include "yoke/ps/sparse/test_tables.h"
#include "yoke/ps/test_messenger.h"

namespace yoke::ps::sparse {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Damaged {
  Damaged() {
    ServerOptions options;
    options.workers = 2;
    options.servers = 2;
    options.make_updater = make_adder();
    options.make_rule = [](int) { return make_rule({}); };
    server = std::make_unique<Server>(messenger, std::move(options));
    EXPECT_EQ(messenger.deliver(0, message_with(kOpenTable, OpenTableHead{0, 1, 1000, DataType::kFloat32})),
              "");
  }
  std::string push(PushTableHead head, std::vector<Key> keys, std::vector<float> values, int from = 1) {
    std::vector<std::byte> payload(keys.size() * sizeof(Key) + values.size() * sizeof(float));
    if (!keys.empty()) std::memcpy(payload.data(), keys.data(), keys.size() * sizeof(Key));
    if (!values.empty())
      std::memcpy(payload.data() + keys.size() * sizeof(Key), values.data(), values.size() * sizeof(float));
    return messenger.deliver(from, message_with(kPushTable, head, payload));
  }
  size_t rows() { return server->numbers().tables.rows; }

  ScriptedMessenger messenger{2, 4};  // the first server: keys 0 to 499
  std::unique_ptr<Server> server;
};

TEST(SparseWire, DamagedPushesAreRefusedByName) {
  Damaged test;
  const PushTableHead good{.keys = 2, .sequence = 1};
  auto with = [&](auto change) {
    PushTableHead head = good;
    change(head);
    return head;
  };
  const std::vector<Key> keys = {1, 2};
  const std::vector<float> values = {1, 1};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(test.push(good, {2, 1}, values), AllOf(HasSubstr("worker 1"), HasSubstr("ascend")));
  EXPECT_THAT(test.push(good, {2, 2}, values), HasSubstr("ascend"));
  EXPECT_THAT(test.push(good, {1, 500}, values), AllOf(HasSubstr("worker 1"), HasSubstr("holds 0 to 500")));
  EXPECT_THAT(test.push(good, {1, ~Key{0}}, values), HasSubstr("worker 1"));
  EXPECT_THAT(test.push(good, keys, {1, 1, 1}), AllOf(HasSubstr("worker 1"), HasSubstr("bytes")));
  EXPECT_THAT(test.push(good, keys, {1, nan}), HasSubstr("non-finite"));
  EXPECT_THAT(test.push(with([](auto& h) { h.table = 1; }), keys, values), HasSubstr("table 1"));
  EXPECT_THAT(test.push(with([](auto& h) { h.table = -1; }), keys, values), HasSubstr("table -1"));
  EXPECT_THAT(test.push(with([](auto& h) { h.keys = -1; }), keys, values), HasSubstr("-1 keys"));
  EXPECT_THAT(test.push(with([](auto& h) { h.keys = std::numeric_limits<int32_t>::max(); }), keys, values),
              HasSubstr("worker 1"));
  EXPECT_THAT(test.push(with([](auto& h) { h.sequence = 0; }), keys, values), HasSubstr("number 0"));
  EXPECT_THAT(test.push(with([](auto& h) { h.settled = 2; }), keys, values), HasSubstr("settled"));
  EXPECT_THAT(test.push(with([](auto& h) { h.scale = NAN; }), keys, values), HasSubstr("scale"));
  EXPECT_THAT(test.push(with([](auto& h) { h.flags = 1 << 20; }), keys, values), HasSubstr("flags"));
  EXPECT_THAT(test.push(with([](auto& h) { h.flags = kFixedPoint; }), keys, values), HasSubstr("flags"));
  EXPECT_THAT(test.push(with([](auto& h) { h.part = 1; }), keys, values), HasSubstr("part 1 of 1"));
  EXPECT_THAT(test.push(with([](auto& h) { h.parts = 1 << 30; }), keys, values),
              HasSubstr("part 0 of 1073741824"));
  EXPECT_THAT(test.push(good, keys, values, /*from=*/3), HasSubstr("rank 3 is not one of the 2 workers"));
  EXPECT_EQ(test.rows(), 0u);
  EXPECT_EQ(test.push(good, keys, values), "");
  EXPECT_EQ(test.rows(), 2u);
}

TEST(SparseWire, PartsOfAGradientMustFitTogether) {
  Damaged test;
  const PushTableHead part{.flags = kInUpdate, .keys = 1, .sequence = 4, .part = 1, .parts = 3};
  EXPECT_EQ(test.push(part, {100}, {1}), "");
  PushTableHead other = part;
  other.parts = 4;
  EXPECT_THAT(test.push(other, {101}, {1}), AllOf(HasSubstr("worker 1"), HasSubstr("part 1 of 4")));
  PushTableHead after = part;
  after.part = 2;
  EXPECT_THAT(test.push(after, {99}, {1}), AllOf(HasSubstr("worker 1"), HasSubstr("ascend")));
  PushTableHead before = part;
  before.part = 0;
  EXPECT_THAT(test.push(before, {100}, {1}), HasSubstr("ascend"));
  EXPECT_EQ(test.push(part, {100}, {1}), "") << "a resend";
  EXPECT_EQ(test.server->numbers().tables.duplicates, 1);
}

TEST(SparseWire, DamagedRequestsOfOtherKindsAreRefused) {
  Damaged test;
  auto refusal = [&](const comm::Message& message) { return test.messenger.deliver(0, message); };
  EXPECT_THAT(refusal(message_with(kOpenTable, OpenTableHead{64})), HasSubstr("worker 0 opens table 64"));
  EXPECT_THAT(refusal(message_with(kOpenTable, OpenTableHead{1, 0})), HasSubstr("0 values"));
  EXPECT_THAT(refusal(message_with(kOpenTable, OpenTableHead{1, 1, (Key{1} << 63) + 1})), HasSubstr("range"));
  EXPECT_THAT(refusal(message_with(kOpenTable, OpenTableHead{0, 2, 1000})), HasSubstr("unlike the others"));
  EXPECT_THAT(refusal(message_with(kPullTable, PullTableHead{0, 0, 1 << 30})), HasSubstr("at most"));
  EXPECT_THAT(refusal(message_with(kPullTable, PullTableHead{0, 0, 1, -5})), HasSubstr("version -5"));
  EXPECT_THAT(refusal(message_with(kPullTable, PullTableHead{0, 0, 1})), HasSubstr("0 bytes for 1 keys"));
  EXPECT_THAT(refusal(message_with(kFetchTable, FetchTableHead{0, 0, 1, 0, 10, 5})), HasSubstr("array 1"));
  EXPECT_THAT(refusal(message_with(kFetchTable, FetchTableHead{0, 0, 0, 10, 5, 5})), HasSubstr("10 to 5"));
  EXPECT_THAT(refusal(message_with(kFetchTable, FetchTableHead{0, 0, 0, 0, 10, -1})), HasSubstr("-1 keys"));
  EXPECT_THAT(refusal(message_with(kAssignTable, AssignTableHead{0, 1, 0})), HasSubstr("array 1"));
  EXPECT_THAT(refusal(message_with(kAssignTable, int64_t{0})), HasSubstr("head"));
  std::vector<std::byte> large(kMessageBytes + kMostWidth * sizeof(double) + 1);
  EXPECT_THAT(refusal(message_with(kPullTable, PullTableHead{}, large)), HasSubstr("at most"));
}

TEST(SparseWire, ListsAreKeptByWorker) {
  Damaged test;
  const std::vector<Key> keys = {3, 5};
  PushTableHead keep{.flags = kKeepKeys, .keys = 2, .sequence = 1, .hash = hash_of(keys)};
  EXPECT_EQ(test.push(keep, keys, {1, 1}), "");
  PushTableHead named = keep;
  named.flags = kCachedKeys;
  named.sequence = 2;
  EXPECT_EQ(test.push(named, {}, {1, 1}), "");
  EXPECT_EQ(test.server->numbers().tables.cached_lists, 1);
  named.sequence = 1;
  EXPECT_EQ(test.push(named, {}, {1, 1}, /*from=*/0), "") << "answered: the list is not known";
  EXPECT_EQ(test.server->numbers().tables.cached_lists, 1);
  named.keys = 3;
  EXPECT_EQ(test.push(named, {}, {1, 1, 1}), "") << "another number of keys: not known either";
  EXPECT_EQ(test.server->numbers().tables.cached_lists, 1);
}

}  // namespace
}  // namespace yoke::ps::sparse
