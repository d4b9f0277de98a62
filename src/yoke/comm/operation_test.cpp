#include "yoke/comm/operation.h"

#include <gtest/gtest.h>

namespace yoke::comm {
namespace {

Descriptor bucket() {
  Descriptor descriptor;
  descriptor.number = 17;
  descriptor.count = 128 * 64;
  descriptor.set_name("bucket 2");
  descriptor.set_shape(std::vector<int64_t>{128, 64});
  return descriptor;
}

TEST(Descriptor, ReadsLikeACall) {
  EXPECT_EQ(bucket().text(), "all_reduce #17 'bucket 2' sum of fp32 [128, 64]");
}

TEST(Descriptor, EveryDifferenceChangesTheFingerprint) {
  const uint64_t same = bucket().fingerprint();
  EXPECT_EQ(same, bucket().fingerprint());
  auto differs = [&](auto change) {
    Descriptor other = bucket();
    change(other);
    return other.fingerprint() != same;
  };
  EXPECT_TRUE(differs([](Descriptor& d) { d.op = static_cast<uint8_t>(plan::Collective::kBroadcast); }));
  EXPECT_TRUE(differs([](Descriptor& d) { d.type = DataType::kInt32; }));
  EXPECT_TRUE(differs([](Descriptor& d) { d.reduce = ReduceOp::kMax; }));
  EXPECT_TRUE(differs([](Descriptor& d) { d.root = 1; }));
  EXPECT_TRUE(differs([](Descriptor& d) { d.number = 18; }));
  EXPECT_TRUE(differs([](Descriptor& d) { d.set_shape(std::vector<int64_t>{64, 128}); }));
  EXPECT_TRUE(differs([](Descriptor& d) { d.set_name("bucket 3"); }));
  EXPECT_TRUE(differs([](Descriptor& d) { d.parts = 5; }));
}

TEST(Descriptor, LongNamesAreCutAndManyDimensionsFolded) {
  Descriptor descriptor = bucket();
  descriptor.set_name(std::string(200, 'x'));
  EXPECT_EQ(std::string(descriptor.name).size(), sizeof(descriptor.name) - 1);
  Descriptor other = descriptor;
  descriptor.set_shape(std::vector<int64_t>{2, 3, 4, 5, 6});
  other.set_shape(std::vector<int64_t>{2, 3, 4, 5, 7});
  EXPECT_NE(descriptor.fingerprint(), other.fingerprint());
}

TEST(Descriptor, ASendAndItsReceiveAgree) {
  Descriptor send = bucket();
  Descriptor receive = bucket();
  send.op = kSendOp;
  receive.op = kReceiveOp;
  EXPECT_EQ(send.fingerprint(), receive.fingerprint());
}

TEST(Descriptor, AMismatchShowsBothSidesInRankOrder) {
  Descriptor other = bucket();
  other.type = DataType::kInt32;
  EXPECT_EQ(
      describe_mismatch(2, other, 0, bucket()),
      "the ranks ask for different things: rank 0 called all_reduce #17 'bucket 2' sum of fp32 [128, 64], "
      "rank 2 called all_reduce #17 'bucket 2' sum of int32 [128, 64]");
}

}  // namespace
}  // namespace yoke::comm
