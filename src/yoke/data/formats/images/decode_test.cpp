#include "yoke/data/formats/images/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "yoke/data/formats/images/test_pictures.h"

namespace yoke::data {
namespace {

using ::testing::HasSubstr;

ChooseRegion whole(Size target = {1 << 14, 1 << 14}) {
  return [target](Size size) -> Request {
    return {{0, 0, static_cast<double>(size.width), static_cast<double>(size.height)}, target};
  };
}

Picture decoded(const std::string& bytes, const ChooseRegion& choose = whole()) {
  Picture picture;
  decode_picture(bytes, choose, picture);
  return picture;
}

std::array<int, 3> pixel(const Picture& picture, int x, int y) {
  const uint8_t* at = picture.pixels.data() + 4 * (y * picture.size.width + x);
  return {at[0], at[1], at[2]};
}

void expect_near(const std::array<int, 3>& have, const std::array<int, 3>& wanted, int tolerance) {
  for (size_t c = 0; c < 3; ++c) EXPECT_NEAR(have[c], wanted[c], tolerance) << "channel " << c;
}

void expect_gradient(const Picture& picture, Size size, int tolerance) {
  ASSERT_EQ(picture.size, size);
  for (int y : {0, size.height / 2, size.height - 1})
    for (int x : {0, size.width / 3, size.width - 1})
      expect_near(pixel(picture, x, y), {255 * x / size.width, 255 * y / size.height, 128}, tolerance);
}

std::string picture_error(const std::string& bytes) {
  try {
    decoded(bytes);
  } catch (const BadPicture& error) {
    return error.what();
  }
  return "no error";
}

constexpr Size kSize{93, 61};

TEST(DecodePicture, ReadsJpegAsItWasWritten) {
  for (bool progressive : {false, true})
    expect_gradient(decoded(make_jpeg(kSize, gradient(kSize), JCS_RGB, progressive)), kSize, 6);
}

TEST(DecodePicture, ReadsGreyscaleAndCmykJpeg) {
  const std::string grey(static_cast<size_t>(kSize.width * kSize.height), '\x50');
  expect_near(pixel(decoded(make_jpeg(kSize, grey, JCS_GRAYSCALE)), 9, 9), {0x50, 0x50, 0x50}, 2);
  std::string inks;
  for (int i = 0; i < kSize.width * kSize.height; ++i) inks += "\xF0\x80\x20\x80";
  expect_near(pixel(decoded(make_jpeg(kSize, inks, JCS_CMYK)), 50, 30), {0xF0 / 2, 0x80 / 2, 0x20 / 2}, 3);
}

TEST(DecodePicture, ReadsEveryKindOfPng) {
  for (bool interlaced : {false, true}) {
    const auto count = static_cast<size_t>(kSize.width * kSize.height);
    expect_gradient(decoded(make_png(kSize, gradient(kSize), {PNG_COLOR_TYPE_RGB, 8, interlaced})), kSize, 0);
    std::string transparent, deep;
    for (char c : gradient(kSize)) {
      deep += c;
      deep += c;
      transparent += c;
      if (transparent.size() % 4 == 3) transparent += '\x05';
    }
    expect_gradient(decoded(make_png(kSize, deep, {PNG_COLOR_TYPE_RGB, 16, interlaced})), kSize, 0);
    expect_gradient(decoded(make_png(kSize, transparent, {PNG_COLOR_TYPE_RGB_ALPHA, 8, interlaced})), kSize,
                    0);
    const Picture grey =
        decoded(make_png(kSize, std::string(count, '\x50'), {PNG_COLOR_TYPE_GRAY, 8, interlaced}));
    expect_near(pixel(grey, 5, 6), {0x50, 0x50, 0x50}, 0);
    const Picture palette =
        decoded(make_png(kSize, std::string(count, '\x11'), {PNG_COLOR_TYPE_PALETTE, 8, interlaced}));
    expect_near(pixel(palette, 92, 60), {0x11, 0xEE, 7}, 0);
  }
}

TEST(DecodePicture, DecodesARegionAsItLooksInTheWhole) {
  const Size size{301, 203};
  for (const std::string& bytes : {make_jpeg(size, gradient(size)), make_png(size, gradient(size))}) {
    const Picture all = decoded(bytes);
    for (const Region region : {Region{0, 0, 20, 20}, {17, 33, 100, 64}, {250.5, 150.25, 50.5, 52.75}}) {
      const Picture part = decoded(bytes, [&](Size) -> Request { return {region, {1 << 14, 1 << 14}}; });
      const int left = static_cast<int>(region.x - part.region.x),
                top = static_cast<int>(region.y - part.region.y);
      EXPECT_EQ(part.region.width, region.width);
      EXPECT_GE(part.size.width, static_cast<int>(region.width));
      EXPECT_LT(part.size.height, size.height);
      for (int y = 0; y < part.size.height; ++y)
        for (int x = 0; x < part.size.width; ++x)
          ASSERT_EQ(pixel(part, x, y), pixel(all, left + x, top + y)) << x << " " << y << " from " << left;
    }
  }
}

TEST(DecodePicture, ReducesJpegButNotBelowTheTarget) {
  const Size size{640, 480};
  const std::string bytes = make_jpeg(size, gradient(size));
  struct Case {
    Size target, expected;
  };
  for (const Case& one : {Case{{640, 480}, size},
                          {{320, 241}, size},
                          {{320, 240}, {320, 240}},
                          {{100, 100}, {160, 120}},
                          {{8, 8}, {80, 60}}})
    expect_gradient(decoded(bytes, whole(one.target)), one.expected, 8);
  // Reduced regions keep their place.
  const Picture part = decoded(bytes, [](Size) -> Request { return {{200, 100, 240, 160}, {120, 80}}; });
  EXPECT_EQ(part.region.width, 120);
  const auto centre = pixel(part, static_cast<int>(part.region.x) + 60, static_cast<int>(part.region.y) + 40);
  expect_near(centre, {255 * 320 / 640, 255 * 180 / 480, 128}, 6);
}

TEST(DecodePicture, RefusesFilesThatEndEarly) {
  for (const std::string& bytes : {make_jpeg(kSize, gradient(kSize)), make_png(kSize, gradient(kSize)),
                                   make_jpeg(kSize, gradient(kSize), JCS_RGB, /*progressive=*/true)})
    for (size_t length = 0; length + 2 < bytes.size(); length += 41)
      EXPECT_THROW(decoded(bytes.substr(0, length)), BadPicture) << length << " of " << bytes.size();
  const std::string jpeg = make_jpeg(kSize, gradient(kSize));
  EXPECT_THAT(picture_error(jpeg.substr(0, jpeg.size() - 40)), HasSubstr("ends early"));
}

TEST(DecodePicture, RefusesWhatIsNoPicture) {
  EXPECT_THAT(picture_error(""), HasSubstr("empty"));
  EXPECT_THAT(picture_error("GIF89a and so on"), HasSubstr("neither JPEG nor PNG"));
  EXPECT_THAT(picture_error(std::string("\xFF\xD8\xFF", 3) + std::string(300, 'x')), testing::Ne("no error"));
}

TEST(DecodePicture, RefusesHugePicturesBeforeItTakesMemory) {
  std::string jpeg = make_jpeg(kSize, gradient(kSize));
  const size_t frame = jpeg.find("\xFF\xC0");
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, "\xFF\x00\xFF\x00", 4);
  EXPECT_THAT(picture_error(jpeg), HasSubstr("65280x65280 pixels; at most"));
  std::string png = make_png(kSize, gradient(kSize));
  png.replace(16, 8, std::string("\x00\x7F\xFF\xFF\x00\x7F\xFF\xFF", 8));
  EXPECT_THAT(picture_error(png), testing::Ne("no error"));
}

TEST(DecodePicture, FindsDamageInPng) {
  std::string bytes = make_png(kSize, gradient(kSize));
  bytes[bytes.find("IDAT") + 20] ^= 0x55;
  EXPECT_THAT(picture_error(bytes), testing::Ne("no error"));
}

TEST(PictureName, IsKnownByItsEndingInAnyCase) {
  for (const char* name : {"a.jpg", "b/c.JPEG", "d.x.Png"}) EXPECT_TRUE(is_picture_name(name)) << name;
  for (const char* name : {"a.txt", "jpg", "a.jpg.part", ""}) EXPECT_FALSE(is_picture_name(name)) << name;
}

}  // namespace
}  // namespace yoke::data
