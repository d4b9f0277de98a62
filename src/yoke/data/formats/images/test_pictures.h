// Pictures and archives made by tests.
#pragma once

#include <cstdio>
// jpeglib.h needs stdio.h first
#include <jpeglib.h>
#include <png.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "yoke/data/formats/images/picture.h"

namespace yoke::data {

using Colour = std::vector<uint8_t>;

// Smooth in both directions, so that compression changes it little: red grows to the right, green downwards.
inline std::string gradient(Size size, int channels = 3) {
  std::string pixels;
  for (int y = 0; y < size.height; ++y)
    for (int x = 0; x < size.width; ++x)
      for (int c = 0; c < channels; ++c)
        pixels.push_back(static_cast<char>(c == 0   ? 255 * x / size.width
                                           : c == 1 ? 255 * y / size.height
                                                    : 128));
  return pixels;
}

// `pixels`: rows without gaps, of as many channels as `space` has. CMYK is written inverted, as Adobe does.
inline std::string make_jpeg(Size size, const std::string& pixels, J_COLOR_SPACE space = JCS_RGB,
                             bool progressive = false) {
  jpeg_compress_struct codec{};
  jpeg_error_mgr errors{};
  codec.err = jpeg_std_error(&errors);
  jpeg_create_compress(&codec);
  unsigned char* bytes = nullptr;
  unsigned long count = 0;
  jpeg_mem_dest(&codec, &bytes, &count);
  codec.image_width = static_cast<JDIMENSION>(size.width);
  codec.image_height = static_cast<JDIMENSION>(size.height);
  codec.in_color_space = space;
  codec.input_components = space == JCS_GRAYSCALE ? 1 : space == JCS_CMYK ? 4 : 3;
  jpeg_set_defaults(&codec);
  jpeg_set_quality(&codec, 95, TRUE);
  if (progressive) jpeg_simple_progression(&codec);
  jpeg_start_compress(&codec, TRUE);
  const size_t row_bytes = static_cast<size_t>(size.width * codec.input_components);
  for (size_t y = 0; y < static_cast<size_t>(size.height); ++y) {
    std::string row = pixels.substr(y * row_bytes, row_bytes);
    JSAMPROW rows[] = {reinterpret_cast<JSAMPROW>(row.data())};
    jpeg_write_scanlines(&codec, rows, 1);
  }
  jpeg_finish_compress(&codec);
  std::string result(reinterpret_cast<char*>(bytes), count);
  jpeg_destroy_compress(&codec);
  std::free(bytes);
  return result;
}

struct PngKind {
  int colour_type = PNG_COLOR_TYPE_RGB;
  int bits = 8;
  bool interlaced = false;
};

// `pixels`: rows as PNG keeps them. A palette has the colours (i, 255 - i, 7).
inline std::string make_png(Size size, const std::string& pixels, PngKind kind = {}) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  std::string result;
  png_set_write_fn(
      png, &result,
      [](png_structp writer, png_bytep bytes, size_t count) {
        static_cast<std::string*>(png_get_io_ptr(writer))->append(reinterpret_cast<char*>(bytes), count);
      },
      nullptr);
  png_set_IHDR(png, info, static_cast<png_uint_32>(size.width), static_cast<png_uint_32>(size.height),
               kind.bits, kind.colour_type, kind.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  std::vector<png_color> palette;
  for (int i = 0; i < 256; ++i)
    palette.push_back({static_cast<png_byte>(i), static_cast<png_byte>(255 - i), 7});
  if (kind.colour_type == PNG_COLOR_TYPE_PALETTE) png_set_PLTE(png, info, palette.data(), 256);
  png_write_info(png, info);
  const size_t row_bytes = png_get_rowbytes(png, info);
  for (int pass = 0; pass < (kind.interlaced ? png_set_interlace_handling(png) : 1); ++pass)
    for (int y = 0; y < size.height; ++y)
      png_write_row(png,
                    reinterpret_cast<png_const_bytep>(pixels.data()) + static_cast<size_t>(y) * row_bytes);
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return result;
}

// One block: the header of an entry, with its checksum.
inline std::string tar_header(const std::string& name, size_t size, char kind = '0') {
  std::string block(512, '\0');
  block.replace(0, name.size(), name);
  block.replace(100, 7, "0000644");
  char digits[13];
  std::snprintf(digits, sizeof digits, "%011zo", size);
  block.replace(124, 11, digits, 11);
  block[156] = kind;
  block.replace(257, 5, "ustar");
  block.replace(263, 2, "00");
  block.replace(148, 8, "        ");
  unsigned sum = 0;
  for (char c : block) sum += static_cast<unsigned char>(c);
  std::snprintf(digits, sizeof digits, "%06o", sum);
  block.replace(148, 6, digits, 6);
  block[154] = '\0';
  return block;
}

// An entry with its content, filled up to whole blocks.
inline std::string tar_entry(const std::string& name, const std::string& content, char kind = '0') {
  return tar_header(name, content.size(), kind) + content +
         std::string((512 - content.size() % 512) % 512, '\0');
}

inline const std::string kTarEnd(1024, '\0');

// A folder of its own that goes with the test.
class PictureFolder {
 public:
  PictureFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "yoke-pictures-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw ConfigError("no folder {}", name);
    path = name;
  }
  ~PictureFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  PictureFolder(const PictureFolder&) = delete;
  PictureFolder& operator=(const PictureFolder&) = delete;

  void write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories((path / name).parent_path());
    std::ofstream(path / name, std::ios::binary) << bytes;
  }

  std::filesystem::path path;
};

}  // namespace yoke::data
