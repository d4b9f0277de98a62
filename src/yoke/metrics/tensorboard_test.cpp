#include "yoke/metrics/tensorboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/metrics/crc32c.h"
#include "yoke/metrics/event_format.h"
#include "yoke/metrics/test_folder.h"

namespace yoke::metrics {
namespace {

using namespace std::string_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Crc32c, AgreesWithPublishedVectors) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283);
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(Crc32c, IsMaskedAsTFRecordWantsIt) {
  uint32_t crc = 0xe3069283;
  EXPECT_EQ(masked_crc32c("123456789"), (crc >> 15 | crc << 17) + 0xa282ead8u);
}

// Bytes that TensorFlow's own Event message serialises to.
TEST(EventFormat, EncodesTheVersion) {
  EXPECT_EQ(encode_version_event(1.5),
            "\x09\0\0\0\0\0\0\xf8\x3f\x1a\x0d"
            "brain.Event:2"s);
}

TEST(EventFormat, EncodesScalars) {
  EXPECT_EQ(encode_scalar_event(1.5, 300, {{"loss", 0.5f}}),
            "\x09\0\0\0\0\0\0\xf8\x3f"s  // wall_time
            "\x10\xac\x02"               // step 300
            "\x2a\x0d"                   // summary of 13 bytes
            "\x0a\x0b"                   // value of 11 bytes
            "\x0a\x04loss"               // tag
            "\x15\0\0\0\x3f"s);          // simple_value
}

TEST(EventFormat, EncodesTheRestart) {
  EXPECT_EQ(encode_restart_event(1.5, 3), "\x09\0\0\0\0\0\0\xf8\x3f\x10\x03\x3a\x02\x08\x01"s);
}

TEST(EventFormat, LeavesOutStepZeroAsProtobufDoes) {
  EXPECT_EQ(encode_restart_event(1.5, 0), "\x09\0\0\0\0\0\0\xf8\x3f\x3a\x02\x08\x01"s);
}

TEST(EventFormat, FramesWithLengthAndChecksums) {
  std::string frame = frame_event("abc");
  ASSERT_EQ(frame.size(), 8u + 4 + 3 + 4);
  EXPECT_EQ(frame.substr(0, 8), "\3\0\0\0\0\0\0\0"s);
  uint32_t stored = 0;
  std::memcpy(&stored, frame.data() + 8, 4);
  EXPECT_EQ(stored, masked_crc32c("\3\0\0\0\0\0\0\0"s));
  EXPECT_EQ(frame.substr(12, 3), "abc");
  std::memcpy(&stored, frame.data() + 15, 4);
  EXPECT_EQ(stored, masked_crc32c("abc"));
}

TEST(TensorBoard, WritesVersionRestartAndOneEventARecord) {
  auto folder = fresh_folder();
  TensorBoard sink(folder, [] { return 1700000000.25; });
  sink.start({});
  Record record;
  record.step = 10;
  record.loss = 0.5;
  record.lr = 0.25;
  record.samples_per_s = 64;
  sink.write(record);
  EXPECT_THAT(sink.path().filename().string(), StartsWith("events.out.tfevents.1700000000."));
  std::vector<Scalar> scalars = {{"loss", 0.5f}, {"lr", 0.25f}, {"epoch", 0.0f}, {"samples_per_s", 64.0f}};
  EXPECT_EQ(read_file(sink.path()), frame_event(encode_version_event(1700000000.25)) +
                                        frame_event(encode_restart_event(1700000000.25, 0)) +
                                        frame_event(encode_scalar_event(1700000000.25, 10, scalars)));
}

TEST(TensorBoard, NeverWritesIntoAnEarlierFile) {
  auto folder = fresh_folder();
  auto clock = [] { return 1700000000.0; };
  TensorBoard first(folder, clock);
  first.start({});
  TensorBoard second(folder, clock);
  second.start({.first_step = 20});
  EXPECT_NE(first.path(), second.path());
  EXPECT_THAT(read_file(second.path()), HasSubstr(encode_restart_event(1700000000.0, 21)));
}

TEST(TensorBoard, WritesWhatTheRecordHas) {
  auto folder = fresh_folder();
  TensorBoard sink(folder);
  sink.start({});
  Record record{.tokens_per_s = 1,
                .grad_norm = 1,
                .loss_scale = 1,
                .accuracy = 1,
                .eval_loss = 1,
                .memory_bytes = 1,
                .split = TimeSplit{}};
  sink.write(record);
  std::string content = read_file(sink.path());
  for (const char* tag :
       {"tokens_per_s", "grad_norm", "loss_scale", "accuracy", "eval_loss", "memory_bytes", "seconds/data",
        "seconds/forward", "seconds/backward", "seconds/update", "seconds/other"}) {
    EXPECT_THAT(content, HasSubstr(tag));
  }
}

TEST(TensorBoard, NamesAFolderItCannotWrite) {
  auto folder = fresh_folder();
  write_file_atomically(folder / "file", "x");
  TensorBoard sink(folder / "file");
  EXPECT_THROW(sink.start({}), ConfigError);
}

}  // namespace
}  // namespace yoke::metrics
