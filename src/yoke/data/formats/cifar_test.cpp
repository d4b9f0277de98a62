#include "yoke/data/formats/cifar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::data {
namespace {

using ::testing::HasSubstr;

std::string record(char label) {
  std::string bytes(3073, 'p');
  bytes[0] = label;
  return bytes;
}

std::string cifar_error(const std::string& bytes, const CifarFormat& format = kCifar10Format) {
  try {
    check_cifar(bytes, format, "f.bin");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Cifar, CountsRecords) {
  EXPECT_EQ(check_cifar(record(0) + record(9) + record(3), kCifar10Format, "f.bin"), 3);
}

TEST(Cifar, RefusesPartsOfARecord) {
  EXPECT_THAT(cifar_error(""),
              HasSubstr("f.bin, byte 0: 0 bytes are not whole CIFAR-10 records of 3073 bytes"));
  EXPECT_THAT(cifar_error(std::string(3074, '\1')), HasSubstr("f.bin, byte 3073: 3074 bytes are not whole"));
  EXPECT_THAT(cifar_error(record(1).substr(1)), HasSubstr("3072 bytes are not whole"));
}

TEST(Cifar, NamesTheOffsetOfALabelOutOfRange) {
  EXPECT_THAT(cifar_error(record(1) + record(10)), HasSubstr("byte 3073: expected a label 0..9, found 10"));
  EXPECT_THAT(cifar_error(record('\xff')), HasSubstr("byte 0: expected a label 0..9, found 255"));
}

std::string fine_record(char coarse, char fine) {
  std::string bytes(3074, 'p');
  bytes[0] = coarse;
  bytes[1] = fine;
  return bytes;
}

TEST(Cifar, HasTwoLabelsInItsVersionOfAHundredClasses) {
  EXPECT_EQ(check_cifar(fine_record(0, 99) + fine_record(19, 0), kCifar100Format, "f.bin"), 2);
  EXPECT_THAT(cifar_error(fine_record(20, 0), kCifar100Format),
              HasSubstr("byte 0: expected a label 0..19, found 20. Is it the binary version of CIFAR-100?"));
  EXPECT_THAT(cifar_error(fine_record(1, 1) + fine_record(1, 100), kCifar100Format),
              HasSubstr("byte 3075: expected a label 0..99, found 100"));
  EXPECT_THAT(cifar_error(record(0), kCifar100Format),
              HasSubstr("3073 bytes are not whole CIFAR-100 records of 3074"));
}

}  // namespace
}  // namespace yoke::data
