// Gradients in fewer bytes: their sizes, their errors, and what is left out stays with the worker.
#include "yoke/ps/packing.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <mutex>
#include <random>

#include "yoke/base/error.h"
#include "yoke/ps/test_class.h"

namespace yoke::ps {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const char* kAll[] = {"fp16", "bf16", "int8", "sign", "topk"};

template <class T>
std::vector<T> random_values(size_t count) {
  std::mt19937 bits(7);
  std::normal_distribution<double> law;
  std::vector<T> values(count);
  for (T& one : values) one = static_cast<T>(law(bits));
  return values;
}

template <class T>
std::vector<T> there_and_back(const Packing& packing, const std::vector<T>& values, DataType type) {
  const Packed packed = pack(packing, std::as_bytes(std::span(values)), type);
  EXPECT_EQ(packed.bytes.size(), packed_bytes(packing, static_cast<int64_t>(values.size()), type));
  std::vector<T> back(values.size());
  unpack(packed.encoding, packed.bytes, type, std::as_writable_bytes(std::span(back)));
  return back;
}

TEST(PsPacking, HasTheBytesOfItsFormula) {
  constexpr int64_t kCount = 5000;
  const auto bytes = [](const char* name, DataType type) {
    return packed_bytes(make_packing(name, 0.01), kCount, type);
  };
  EXPECT_EQ(bytes("fp16", DataType::kFloat32), 10'000u);
  EXPECT_EQ(bytes("bf16", DataType::kFloat64), 10'000u);
  EXPECT_EQ(bytes("int8", DataType::kFloat32), 10 * 4 + 5000u);
  EXPECT_EQ(bytes("sign", DataType::kFloat32), 5 * 4 + 625u);
  EXPECT_EQ(bytes("topk", DataType::kFloat32), 50 * (4 + 4u));
  EXPECT_EQ(bytes("topk", DataType::kFloat64), 50 * (8 + 4u));
  EXPECT_EQ(packed_bytes(make_packing("topk", 0.9), 100, DataType::kFloat32), 400u) << "as it is";
  EXPECT_EQ(packed_bytes(make_packing("int8", 0), 1, DataType::kFloat32), 4u) << "as it is";
}

template <class T>
void check_errors(DataType type) {
  const std::vector<T> values = random_values<T>(3000);
  double largest = 0, mean = 0;
  for (T one : values) largest = std::max(largest, std::abs(static_cast<double>(one)));
  for (T one : values) mean += std::abs(static_cast<double>(one)) / 3000;
  for (const char* name : kAll) {
    const std::vector<T> back = there_and_back(make_packing(name, 0.1), values, type);
    const std::string which = name;
    int64_t kept = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double error = std::abs(static_cast<double>(back[i] - values[i]));
      const double size = std::abs(static_cast<double>(values[i]));
      const double bound = which == "fp16"   ? size * 0x1p-11 + 0x1p-25
                           : which == "bf16" ? size * 0x1p-8
                           : which == "int8" ? largest / 127 / 2 * 1.01
                                             : largest;
      EXPECT_LE(error, which == "sign" ? 2 * largest : bound) << which;
      if (which == "sign") {
        EXPECT_EQ(std::signbit(back[i]), std::signbit(values[i]));
        EXPECT_NEAR(std::abs(static_cast<double>(back[i])), mean, 0.1 * mean);
      }
      kept += which == "topk" && back[i] == values[i] ? 1 : 0;
    }
    EXPECT_EQ(kept, which == "topk" ? 300 : 0);
  }
}

TEST(PsPacking, ErrorsAreThoseOfTheEncoding) {
  check_errors<float>(DataType::kFloat32);
  check_errors<double>(DataType::kFloat64);
}

TEST(PsPacking, WhatIsNoEncodingIsRefused) {
  std::vector<float> values(16);
  const auto into = std::as_writable_bytes(std::span(values));
  const auto refuses = [&](Encoding encoding, size_t bytes, const char* text) {
    const std::vector<std::byte> sent(bytes);
    EXPECT_THAT([&] { unpack(encoding, sent, DataType::kFloat32, into); },
                ThrowsMessage<CommError>(HasSubstr(text)));
  };
  refuses(static_cast<Encoding>(6), 64, "encoding 6");
  refuses(static_cast<Encoding>(-1), 64, "encoding -1");
  refuses(Encoding::kPlain, 60, "60 bytes");
  refuses(Encoding::kFp16, 31, "31 bytes");
  refuses(Encoding::kInt8, 19, "19 bytes");
  refuses(Encoding::kSign, 7, "7 bytes");
  refuses(Encoding::kTopk, 0, "0 bytes");
  refuses(Encoding::kTopk, 17 * 8, "136 bytes");
  refuses(Encoding::kTopk, 2 * 8, "position 0 is the 1th");
  const std::vector<float> large(9, 1e6f);
  EXPECT_THAT([&] { pack(make_packing("fp16", 0), std::as_bytes(std::span(large)), DataType::kFloat32); },
              ThrowsMessage<ConfigError>(HasSubstr("beyond the range of fp16")));
  EXPECT_THAT([] { make_packing("powersgd", 2); }, ThrowsMessage<ConfigError>(HasSubstr("powersgd")));
}

// The sum of what servers got is the sum of all gradients, less what the worker still holds.
TEST(PsPacking, WhatIsLeftOutComesLater) {
  constexpr int64_t kSteps = 160;
  for (const char* name : kAll)
    for (bool overlap : {false, true}) {
      Class lesson{
          .policy = {plan::Rule::kSync, 2, 0, 0}, .updates = kSteps, .packing = make_packing(name, 0.05)};
      std::vector<double> sum(5103), last(5103);
      int64_t pushed = 0;
      lesson.run([&](Learner& learner, int worker, LocalGroup&) {
        std::vector<double> parameters(5103), gradient = random_values<double>(5103);
        while (learner.wait()) {
          if (!learner.pull(parameters.data())) continue;
          const Gradient told{.data = gradient.data(), .loss = 1, .lr = 1};
          if (overlap) {
            learner.begin_push(told, nullptr);
            for (size_t i = 0; i < learner.ranges(); ++i) ASSERT_TRUE(learner.push_range(i));
            learner.end_push();
            learner.end_pull();
          } else {
            learner.push(told);
          }
          for (size_t i = 0; i < sum.size() && worker == 0; ++i) sum[i] += gradient[i];
        }
        if (worker == 0) learner.fetch_state({last.data()});
        if (worker == 0) pushed = learner.bytes_pushed();
      });
      // Both workers have the same gradients, so that the mean is that of one.
      const bool casts = std::string(name) == "fp16" || std::string(name) == "bf16";
      double apart = 0, largest = 0;
      for (size_t i = 0; i < sum.size(); ++i) {
        apart = std::max(apart, std::abs(1 - last[i] - sum[i]));
        largest = std::max(largest, std::abs(sum[i]));
      }
      // What is held back grows slower than the sum (of signs alone 0.77 would be missing). A cast has an
      // error of its own in each step.
      EXPECT_LT(apart, largest * (casts ? 0x1p-8 : 0.4)) << name;
      int64_t expected = 0;
      const Sharding sharding(lesson.tensors, {2, 8, 4096, 1});
      for (const Range& range : sharding.ranges())
        expected += static_cast<int64_t>(packed_bytes(lesson.packing, range.count, DataType::kFloat64));
      EXPECT_EQ(pushed, kSteps * expected) << name;
    }
}

}  // namespace
}  // namespace yoke::ps
