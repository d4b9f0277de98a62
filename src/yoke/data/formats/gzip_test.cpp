#include "yoke/data/formats/gzip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "yoke/base/error.h"

namespace yoke::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string pack(std::string text) {
  z_stream z{};
  deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&z, text.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(text.data());
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

std::string gzip_error(std::string_view bytes, int64_t limit = 1 << 20) {
  try {
    unpack_gzip(bytes, "f.gz", limit);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Gzip, UnpacksWhatWasPacked) {
  for (size_t size : {0, 1, 65535, 65536, 65537, 300000}) {
    std::string text(size, 'x');
    for (size_t i = 0; i < size; i += 7) text[i] = static_cast<char>(i * i >> 3);
    EXPECT_EQ(unpack_gzip(pack(text), "f.gz"), text) << size;
  }
}

TEST(Gzip, UnpacksAllMembers) {
  EXPECT_EQ(unpack_gzip(pack("one ") + pack("") + pack("two"), "f.gz"), "one two");
}

TEST(Gzip, AcceptsExactlyTheLimit) {
  EXPECT_EQ(unpack_gzip(pack(std::string(1000, 'a')), "f.gz", 1000).size(), 1000u);
  EXPECT_THAT(gzip_error(pack(std::string(1001, 'a')), 1000),
              AllOf(HasSubstr("f.gz, byte"), HasSubstr("more than the 1000 bytes")));
}

TEST(Gzip, StopsUnpackingABombAtTheLimit) {
  EXPECT_THAT(gzip_error(pack(std::string(8 << 20, '\0')), 1 << 16), HasSubstr("more than the 65536 bytes"));
}

TEST(Gzip, NamesTheOffsetWhereATruncatedFileEnds) {
  const std::string whole = pack("some text that is long enough to be cut anywhere");
  for (size_t cut = 2; cut < whole.size(); ++cut) {
    EXPECT_THAT(gzip_error(whole.substr(0, cut)),
                HasSubstr(fmt::format("byte {}: the gzip data is truncated", cut)));
  }
}

TEST(Gzip, RefusesAnythingElse) {
  EXPECT_THAT(gzip_error(""), HasSubstr("byte 0: expected gzip data (1f 8b), found the end of the file"));
  EXPECT_THAT(gzip_error("PK\x03\x04"), HasSubstr("found 'PK'"));
  const std::string whole = pack("text");
  EXPECT_THAT(gzip_error(whole + "rest"),
              HasSubstr(fmt::format("byte {}: expected gzip data", whole.size())));
}

TEST(Gzip, NoticesDamage) {
  const std::string whole = pack("some text that is long enough to be damaged");
  std::string checksum = whole;
  checksum[whole.size() - 6] ^= 1;
  EXPECT_THAT(gzip_error(checksum), HasSubstr("damaged gzip data (incorrect data check)"));
  std::string block = whole;
  block[10] = '\x07';  // block type 3 does not exist
  EXPECT_THAT(gzip_error(block), HasSubstr("damaged gzip data (invalid block type)"));
}

}  // namespace
}  // namespace yoke::data
