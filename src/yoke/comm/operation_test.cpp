#include "yoke/comm/operation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

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

TEST(Descriptor, NamesOfEveryLengthAreKeptWhole) {
  const std::string letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  Descriptor descriptor = bucket();
  for (size_t length = 0; length <= letters.size(); ++length) {
    // Memory of its own, so that a sanitizer sees a byte too many.
    const std::vector<char> name(letters.begin(), letters.begin() + static_cast<ptrdiff_t>(length));
    descriptor.set_name(std::string(60, 'z'));
    descriptor.set_name({name.data(), name.size()});
    const size_t kept = std::min(length, sizeof(descriptor.name) - 1);
    EXPECT_EQ(std::string(descriptor.name), letters.substr(0, kept));
    for (size_t i = kept; i < sizeof(descriptor.name); ++i) ASSERT_EQ(descriptor.name[i], '\0') << length;
  }
}

TEST(Descriptor, EveryByteChangesTheFingerprint) {
  Descriptor descriptor = bucket();
  std::set<uint64_t> seen{descriptor.fingerprint()};
  auto* bytes = reinterpret_cast<unsigned char*>(&descriptor);
  for (size_t i = 0; i < sizeof(descriptor); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      bytes[i] ^= static_cast<unsigned char>(1 << bit);
      EXPECT_TRUE(seen.insert(descriptor.fingerprint()).second) << "byte " << i << " bit " << bit;
      bytes[i] ^= static_cast<unsigned char>(1 << bit);
    }
  }
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

TEST(Descriptor, WhatAPeerSentIsShownWhateverItIs) {
  Descriptor strange = bucket();
  strange.op = 33;
  EXPECT_EQ(strange.text(), "unknown operation 33 #17 'bucket 2' of fp32 [128, 64]");
  strange = bucket();
  strange.type = static_cast<DataType>(200);
  EXPECT_EQ(strange.text(), "all_reduce #17 'bucket 2' sum of unknown type 200 [128, 64]");
  strange = bucket();
  strange.reduce = static_cast<ReduceOp>(127);
  EXPECT_EQ(strange.text(), "all_reduce #17 'bucket 2' unknown reduction 127 of fp32 [128, 64]");
  for (int byte = 0; byte < 256; ++byte) {
    Descriptor any;
    std::memset(static_cast<void*>(&any), byte, sizeof(any));  // a name without an end, too
    EXPECT_LT(any.text().size(), 400u);
  }
  EXPECT_STREQ(to_string(static_cast<DataType>(200)), "unknown type");
  EXPECT_STREQ(to_string(static_cast<ReduceOp>(127)), "unknown reduction");
  EXPECT_THROW(size_of(static_cast<DataType>(9)), Error);
}

TEST(Descriptor, AMismatchShowsBothSidesInRankOrder) {
  Descriptor other = bucket();
  other.type = DataType::kInt32;
  EXPECT_EQ(describe_mismatch(2, other, 0, bucket()),
            "the ranks called different operations: rank 0 called all_reduce #17 'bucket 2' sum of fp32 "
            "[128, 64], rank 2 called all_reduce #17 'bucket 2' sum of int32 [128, 64]");
}

}  // namespace
}  // namespace yoke::comm
