// JPEG by libjpeg-turbo. Only the rows and columns of the region are decoded, reduced by the inverse DCT
// where that suffices: most of the time of a training crop is saved here.
#include <csetjmp>
#include <cstdio>
// jpeglib.h needs stdio.h first
#include <jpeglib.h>

#include "yoke/data/formats/images/decode.h"

namespace yoke::data {
namespace {

using namespace std::string_view_literals;

constexpr int kMostScans = 200;  // of a progressive picture: a small file can ask for hours of work

struct Errors {
  jpeg_error_mgr manager;  // first: libjpeg hands out a pointer to it
  jmp_buf back;
  char text[JMSG_LENGTH_MAX];
};

[[noreturn]] void leave(j_common_ptr codec) {
  auto* errors = reinterpret_cast<Errors*>(codec->err);
  (*codec->err->format_message)(codec, errors->text);
  longjmp(errors->back, 1);
}

void ignore_warning(j_common_ptr, int) {}

void limit_scans(j_common_ptr codec) {
  auto* decoder = reinterpret_cast<j_decompress_ptr>(codec);
  if (decoder->input_scan_number <= kMostScans) return;
  auto* errors = reinterpret_cast<Errors*>(codec->err);
  std::snprintf(errors->text, sizeof errors->text, "more than %d scans", kMostScans);
  longjmp(errors->back, 1);
}

// libjpeg leaves its functions by longjmp: no function here that calls setjmp has objects to destroy.
class Jpeg {
 public:
  explicit Jpeg(std::string_view bytes) {
    codec_.err = jpeg_std_error(&errors_.manager);
    errors_.manager.error_exit = leave;
    errors_.manager.emit_message = ignore_warning;
    progress_ = {};
    progress_.progress_monitor = limit_scans;
    if (!read_header(bytes)) {
      jpeg_destroy_decompress(&codec_);
      throw_error();
    }
  }
  ~Jpeg() { jpeg_destroy_decompress(&codec_); }
  Jpeg(const Jpeg&) = delete;
  Jpeg& operator=(const Jpeg&) = delete;

  Size size() const { return {static_cast<int>(codec_.image_width), static_cast<int>(codec_.image_height)}; }
  // Without its end marker a file was cut off; libjpeg would paint the rest grey.
  bool has_end() const {
    const auto* left = reinterpret_cast<const char*>(codec_.src->next_input_byte);
    return std::string_view(left, codec_.src->bytes_in_buffer).rfind("\xFF\xD9"sv) != std::string_view::npos;
  }

  void decode(const Request& request, Picture& out) {
    const int reduction = reduction_for(request);
    if (!start(reduction)) throw_error();
    const Region& whole = request.region;
    const Region reduced{whole.x / reduction, whole.y / reduction, whole.width / reduction,
                         whole.height / reduction};
    const Size size{static_cast<int>(codec_.output_width), static_cast<int>(codec_.output_height)};
    const Window window = window_of(reduced, size);
    JDIMENSION first = static_cast<JDIMENSION>(window.x), width = static_cast<JDIMENSION>(window.width);
    if (!cut(window.y, first, width)) throw_error();
    out.size = {static_cast<int>(width), window.height};
    out.region = {reduced.x - first, reduced.y - window.y, reduced.width, reduced.height};
    out.pixels.resize(size_t{width} * static_cast<size_t>(window.height) * 4);
    if (!read(out.pixels.data(), size_t{width} * 4, window.height)) throw_error();
    if (codec_.out_color_space == JCS_CMYK) to_rgb(out);
  }

 private:
  [[noreturn]] void throw_error() const { throw BadPicture(errors_.text); }

  bool read_header(std::string_view bytes) {
    if (setjmp(errors_.back) != 0) return false;
    jpeg_create_decompress(&codec_);
    jpeg_mem_src(&codec_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    codec_.progress = &progress_;
    jpeg_save_markers(&codec_, JPEG_APP0 + 14, 0);
    jpeg_read_header(&codec_, TRUE);
    return true;
  }

  // libjpeg-turbo has vector code for these reductions, and for the merged upsampling and conversion of
  // colours that it chooses without fancy upsampling.
  int reduction_for(const Request& request) const {
    for (int reduction : {8, 4, 2})
      if (request.region.width >= reduction * request.target.width &&
          request.region.height >= reduction * request.target.height)
        return reduction;
    return 1;
  }

  bool start(int reduction) {
    if (setjmp(errors_.back) != 0) return false;
    const bool inks = codec_.jpeg_color_space == JCS_CMYK || codec_.jpeg_color_space == JCS_YCCK;
    codec_.out_color_space = inks ? JCS_CMYK : JCS_EXT_RGBX;
    codec_.scale_num = 1;
    codec_.scale_denom = static_cast<unsigned>(reduction);
    codec_.do_fancy_upsampling = FALSE;
    codec_.do_block_smoothing = FALSE;
    jpeg_start_decompress(&codec_);
    return true;
  }

  // Widens first and width to whole blocks.
  bool cut(int first_row, JDIMENSION& first, JDIMENSION& width) {
    if (setjmp(errors_.back) != 0) return false;
    if (width < codec_.output_width) jpeg_crop_scanline(&codec_, &first, &width);
    if (first_row > 0) jpeg_skip_scanlines(&codec_, static_cast<JDIMENSION>(first_row));
    return true;
  }

  bool read(uint8_t* out, size_t row_bytes, int rows) {
    if (setjmp(errors_.back) != 0) return false;
    for (int row = 0; row < rows;) {
      JSAMPROW next[] = {out + static_cast<size_t>(row) * row_bytes};
      row += static_cast<int>(jpeg_read_scanlines(&codec_, next, 1));
    }
    return true;
  }

  // Adobe's programs store inks inverted; no other program is known to write CMYK.
  static void to_rgb(Picture& picture) {
    for (size_t i = 0; i < picture.pixels.size(); i += 4) {
      uint8_t* inks = picture.pixels.data() + i;
      for (int c = 0; c < 3; ++c) inks[c] = static_cast<uint8_t>(inks[c] * inks[3] / 255);
    }
  }

  jpeg_decompress_struct codec_{};
  Errors errors_{};
  jpeg_progress_mgr progress_{};
};

}  // namespace

void decode_jpeg(std::string_view bytes, const ChooseRegion& choose, Picture& out) {
  Jpeg jpeg(bytes);
  check_size(jpeg.size());
  if (!jpeg.has_end()) throw BadPicture(fmt::format("JPEG data ends early, after {} bytes", bytes.size()));
  jpeg.decode(choose(jpeg.size()), out);
}

}  // namespace yoke::data
