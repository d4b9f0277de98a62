#include "yoke/checkpoint/format/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::checkpoint::format {
namespace {

using testing::HasSubstr;

std::string file_of(const std::string& json, size_t data_bytes = 0, std::optional<uint64_t> length = {}) {
  uint64_t n = length.value_or(json.size());
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(n >> (8 * i));
  return file + json + std::string(data_bytes, 'x');
}

SafetensorsHeader parse(const std::string& file) {
  return parse_header(file, file.size(), "w.safetensors");
}

std::string reader_refusal(const std::string& file) {
  try {
    parse(file);
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("w.safetensors"));
    return error.what();
  }
  return "accepted";
}

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirBytes) {
  std::string json = R"({"__metadata__":{"format":"pt"},"b":)" + tensor("F32", "[2,3]", "[4,28]") +
                     R"(,"a":)" + tensor("I16", "[2]", "[0,4]") + "}   ";
  auto header = parse(file_of(json, 28));
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[0].dtype, DType::kI16);
  EXPECT_EQ(header.tensors[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(header.tensors[1].begin, 4u);
  EXPECT_EQ(header.tensors[1].end, 28u);
  EXPECT_EQ(header.metadata.at("format"), "pt");
  EXPECT_EQ(header.data_offset, 8 + json.size());
}

TEST(Safetensors, NeedsOnlyTheHeaderOfALargeFile) {
  std::string prefix = file_of(R"({"a":)" + tensor("U8", "[1000000]", "[0,1000000]") + "}");
  EXPECT_EQ(parse_header(prefix, prefix.size() + 1000000, "big").tensors.size(), 1u);
}

TEST(Safetensors, AcceptsScalarsEmptyTensorsAndNoTensors) {
  auto header =
      parse(file_of(R"({"s":)" + tensor("F64", "[]", "[0,8]") + R"(,"e":)" + tensor("F32", "[3,0]", "[8,8]") +
                        R"(,"e0":)" + tensor("F32", "[0]", "[0,0]") + "}",
                    8));
  EXPECT_EQ(header.tensors.size(), 3u);
  EXPECT_TRUE(parse(file_of("{}")).tensors.empty());
}

TEST(Safetensors, KnowsTheSizeOfEveryDtype) {
  for (int i = 0; i <= static_cast<int>(DType::kU64); ++i) {
    auto dtype = static_cast<DType>(i);
    std::string name(name_of(dtype));
    EXPECT_EQ(parse_dtype(name), dtype);
    size_t bytes = 3 * size_of(dtype);
    EXPECT_NO_THROW(
        parse(file_of(R"({"t":)" + tensor(name, "[3]", "[0," + std::to_string(bytes) + "]") + "}", bytes)));
  }
}

TEST(Safetensors, RefusesFilesTooShortForTheirHeader) {
  EXPECT_THAT(reader_refusal(""), HasSubstr("too short"));
  EXPECT_THAT(reader_refusal("1234567"), HasSubstr("too short"));
  EXPECT_THAT(reader_refusal(file_of("{}", 0, 3)), HasSubstr("ends at byte 10"));
  EXPECT_THAT(reader_refusal(file_of("{}", 0, 0)), HasSubstr("byte 8 is not '{'"));
}

TEST(Safetensors, RefusesAHeaderLengthAboveTheCapBeforeLookingFurther) {
  EXPECT_THAT(reader_refusal(file_of("{}", 0, kMaxHeaderBytes + 1)), HasSubstr("header length 100000001"));
  EXPECT_THAT(reader_refusal(file_of("{}", 0, UINT64_MAX)), HasSubstr("header length 18446744073709551615"));
}

TEST(Safetensors, RefusesAHeaderThatDoesNotBeginWithABrace) {
  EXPECT_THAT(reader_refusal(file_of(" {}")), HasSubstr("byte 8 is not '{'"));
  EXPECT_THAT(reader_refusal(file_of("[]")), HasSubstr("byte 8 is not '{'"));
}

TEST(Safetensors, RefusesWhatIsNotJson) {
  EXPECT_THAT(reader_refusal(file_of("{\"a\":}")), HasSubstr("not valid JSON at byte"));
  EXPECT_THAT(reader_refusal(file_of("{")), HasSubstr("not valid JSON"));
  EXPECT_THAT(reader_refusal(file_of("{\"\xff\":1}")), HasSubstr("not valid JSON"));
  EXPECT_THAT(reader_refusal(file_of("{}{}")), HasSubstr("not valid JSON"));
}

TEST(Safetensors, RefusesOtherPaddingThanSpaces) {
  EXPECT_NO_THROW(parse(file_of("{}     ")));
  EXPECT_THAT(reader_refusal(file_of("{}\t")), HasSubstr("byte 10 behind the header's JSON"));
  EXPECT_THAT(reader_refusal(file_of(std::string("{}\0\0", 4))),
              HasSubstr("NUL byte inside the JSON at byte 10"));
}

TEST(Safetensors, RefusesAKeyThatStandsTwice) {
  std::string t = tensor("U8", "[0]", "[0,0]");
  EXPECT_THAT(reader_refusal(file_of(R"({"a":)" + t + R"(,"a":)" + t + "}")),
              HasSubstr("\"a\" appears twice"));
  EXPECT_THAT(reader_refusal(file_of(R"({"__metadata__":{},"__metadata__":{}})")),
              HasSubstr("appears twice"));
  EXPECT_THAT(reader_refusal(file_of(R"({"__metadata__":{"k":"1","k":"2"}})")),
              HasSubstr("\"k\" appears twice"));
  EXPECT_THAT(
      reader_refusal(file_of(R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})")),
      HasSubstr("\"dtype\" appears twice"));
}

TEST(Safetensors, RefusesNestingDeeperThanThree) {
  EXPECT_THAT(reader_refusal(file_of(R"({"a":)" + tensor("U8", "[[1]]", "[0,1]") + "}", 1)),
              HasSubstr("a list in \"shape\""));
  EXPECT_THAT(reader_refusal(file_of(R"({"a":)" + tensor("U8", "[1]", "[0,{}]") + "}", 1)),
              HasSubstr("an object in"));
  EXPECT_THAT(reader_refusal(file_of(R"({"a":)" + std::string(100000, '[') + "}")),
              HasSubstr("a list where a tensor"));
  EXPECT_THAT(reader_refusal(file_of(R"({"__metadata__":{"k":{}}})")),
              HasSubstr("metadata values must be strings"));
}

TEST(Safetensors, RefusesValuesOfTheWrongType) {
  EXPECT_THAT(reader_refusal(file_of(R"({"a":1})")), HasSubstr("the number 1 where a tensor's description"));
  EXPECT_THAT(reader_refusal(file_of(R"({"a":null})")), HasSubstr("null where"));
  EXPECT_THAT(reader_refusal(file_of(R"({"__metadata__":{"k":1}})")),
              HasSubstr("the value of \"k\" is the number 1"));
  EXPECT_THAT(reader_refusal(file_of(R"({"__metadata__":[]})")), HasSubstr("a list"));
  EXPECT_THAT(reader_refusal(file_of(R"({"a":{"dtype":8,"shape":[],"data_offsets":[0,1]}})", 1)),
              HasSubstr("dtype: text"));
  EXPECT_THAT(reader_refusal(file_of(R"({"a":{"dtype":"U8","shape":3,"data_offsets":[0,1]}})", 1)),
              HasSubstr("list of numbers"));
  EXPECT_THAT(reader_refusal(file_of(R"({"a":{"dtype":"U8","shape":[true],"data_offsets":[0,1]}})", 1)),
              HasSubstr("\"shape\""));
}

TEST(Safetensors, RefusesMissingAndUnknownKeys) {
  EXPECT_THAT(reader_refusal(file_of(R"({"a":{}})")), HasSubstr("\"a\": \"dtype\" is missing"));
  EXPECT_THAT(reader_refusal(file_of(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1)),
              HasSubstr("\"shape\" is missing"));
  EXPECT_THAT(reader_refusal(file_of(R"({"a":{"dtype":"U8","shape":[]}})", 1)),
              HasSubstr("\"data_offsets\" is missing"));
  EXPECT_THAT(reader_refusal(file_of(R"({"a":{"order":"C"}})")), HasSubstr("unknown key \"order\""));
}

TEST(Safetensors, RefusesNumbersThatAreNoOffsets) {
  for (const char* bad :
       {"[-1,0]", "[0,1.5]", "[0,9223372036854775808]", "[0,99999999999999999999]", "[0,1e3]"}) {
    EXPECT_THAT(reader_refusal(file_of(R"({"a":)" + tensor("U8", "[1]", bad) + "}", 1)),
                HasSubstr("data_offsets"))
        << bad;
  }
  EXPECT_THAT(reader_refusal(file_of(R"({"a":)" + tensor("U8", "[1]", "[0]") + "}", 1)),
              HasSubstr("needs two numbers"));
  EXPECT_THAT(reader_refusal(file_of(R"({"a":)" + tensor("U8", "[1]", "[0,1,2]") + "}", 1)),
              HasSubstr("more than two"));
  EXPECT_THAT(reader_refusal(file_of(R"({"a":)" + tensor("U8", "[-1]", "[0,1]") + "}", 1)),
              HasSubstr("negative number -1"));
}

TEST(Safetensors, RefusesUnknownDtypesByName) {
  for (const char* dtype : {"F4", "F6_E2M3", "Q8", "f32"}) {
    EXPECT_THAT(reader_refusal(file_of(R"({"a":)" + tensor(dtype, "[2]", "[0,1]") + "}", 1)),
                HasSubstr("\"a\": dtype \"" + std::string(dtype) + "\" is not supported"));
  }
}

TEST(Safetensors, RefusesShapesWhoseSizeOverflows) {
  for (const char* shape : {"[4294967296,4294967296]", "[9223372036854775807,2]", "[9223372036854775807]",
                            "[0,4294967296,4294967296]"}) {
    EXPECT_THAT(reader_refusal(file_of(R"({"a":)" + tensor("F32", shape, "[0,0]") + "}")),
                HasSubstr("\"a\" at offset 0"))
        << shape;
  }
}

TEST(Safetensors, RefusesSizesThatDoNotFitDtypeAndShape) {
  EXPECT_THAT(reader_refusal(file_of(R"({"a":)" + tensor("F32", "[2]", "[0,4]") + "}", 4)),
              HasSubstr("4 bytes, but dtype F32"));
  EXPECT_THAT(reader_refusal(file_of(R"({"a":)" + tensor("F32", "[1]", "[4,0]") + "}", 4)),
              HasSubstr("before it begins"));
}

TEST(Safetensors, RefusesHolesOverlapsAndSurplusBytes) {
  std::string a = R"({"a":)" + tensor("U8", "[4]", "[0,4]");
  EXPECT_THAT(reader_refusal(file_of(a + R"(,"b":)" + tensor("U8", "[4]", "[5,9]") + "}", 9)),
              HasSubstr("\"b\" begins at offset 5"));
  EXPECT_THAT(reader_refusal(file_of(a + R"(,"b":)" + tensor("U8", "[4]", "[3,7]") + "}", 7)),
              HasSubstr("an overlap"));
  EXPECT_THAT(reader_refusal(file_of(a + R"(,"b":)" + tensor("U8", "[4]", "[0,4]") + "}", 4)),
              HasSubstr("an overlap"));
  EXPECT_THAT(reader_refusal(file_of(R"({"a":)" + tensor("U8", "[4]", "[1,5]") + "}", 5)),
              HasSubstr("a hole"));
  EXPECT_THAT(reader_refusal(file_of(a + "}", 5)),
              HasSubstr("1 bytes behind the last tensor, from offset 4"));
  EXPECT_THAT(reader_refusal(file_of(a + "}", 3)), HasSubstr("\"a\" ends at offset 4, but only 3 bytes"));
  EXPECT_THAT(reader_refusal(file_of("{}", 1)), HasSubstr("behind the last tensor"));
}

TEST(Safetensors, BoundsNamesAndDimensions) {
  std::string name(kMaxNameBytes + 1, 'n');
  EXPECT_THAT(reader_refusal(file_of("{\"" + name + "\":" + tensor("U8", "[0]", "[0,0]") + "}")),
              HasSubstr("a name of 4097 bytes"));
  std::string shape = "[1";
  for (size_t i = 0; i < kMaxDims; ++i) shape += ",1";
  EXPECT_THAT(reader_refusal(file_of(R"({"a":)" + tensor("U8", shape + "]", "[0,1]") + "}", 1)),
              HasSubstr("64 dimensions"));
}

}  // namespace
}  // namespace yoke::checkpoint::format
