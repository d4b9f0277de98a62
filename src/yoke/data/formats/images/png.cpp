// PNG by libpng. Rows below the region are not read, unless the picture is interlaced.
#include <png.h>

#include <csetjmp>
#include <cstring>

#include "yoke/data/formats/images/decode.h"

namespace yoke::data {
namespace {

struct Input {
  const char* next;
  size_t left;
  char text[256];  // of the error
};

[[noreturn]] void leave(png_structp png, png_const_charp text) {
  auto* input = static_cast<Input*>(png_get_error_ptr(png));
  std::strncpy(input->text, text, sizeof input->text - 1);
  png_longjmp(png, 1);
}

void ignore_warning(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep out, size_t count) {
  auto* input = static_cast<Input*>(png_get_io_ptr(png));
  if (count > input->left) png_error(png, "PNG data ends early");
  std::memcpy(out, input->next, count);
  input->next += count;
  input->left -= count;
}

// libpng leaves its functions by longjmp: no function here that calls setjmp has objects to destroy.
class Png {
 public:
  explicit Png(std::string_view bytes) : input_{bytes.data(), bytes.size(), {}} {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &input_, leave, ignore_warning);
    info_ = png_ != nullptr ? png_create_info_struct(png_) : nullptr;
    YOKE_CHECK(info_ != nullptr, "libpng gives no memory");
    if (read_header()) return;
    png_destroy_read_struct(&png_, &info_, nullptr);
    throw_error();
  }
  ~Png() { png_destroy_read_struct(&png_, &info_, nullptr); }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;

  Size size() const {
    return {static_cast<int>(png_get_image_width(png_, info_)),
            static_cast<int>(png_get_image_height(png_, info_))};
  }

  void decode(const Request& request, Picture& out) {
    const Window window = window_of(request.region, size());
    const size_t row_bytes = static_cast<size_t>(size().width) * 4;
    const bool interlaced = png_get_interlace_type(png_, info_) != PNG_INTERLACE_NONE;
    if (!start() || png_get_rowbytes(png_, info_) != row_bytes) throw_error();
    std::vector<uint8_t> rows(row_bytes * static_cast<size_t>(interlaced ? size().height : 1));
    out.size = {window.width, window.height};
    out.region = request.region;
    out.region.x -= window.x;
    out.region.y -= window.y;
    out.pixels.resize(static_cast<size_t>(window.width) * static_cast<size_t>(window.height) * 4);
    if (!(interlaced ? read_all(rows.data(), row_bytes, window, out.pixels.data())
                     : read(rows.data(), window, out.pixels.data())))
      throw_error();
  }

 private:
  [[noreturn]] void throw_error() const {
    throw BadPicture(input_.text[0] == '\0' ? "a PNG file of unknown form" : input_.text);
  }

  bool read_header() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_read_fn(png_, &input_, read_bytes);
    png_set_user_limits(png_, 1 << 20, 1 << 20);  // a side; check_size() limits the area
    png_read_info(png_, info_);
    return true;
  }

  bool start() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_expand(png_);
    png_set_scale_16(png_);
    png_set_gray_to_rgb(png_);
    png_set_add_alpha(png_, 0xFF, PNG_FILLER_AFTER);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }

  bool read(uint8_t* row, const Window& window, uint8_t* out) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    for (int y = 0; y < window.y + window.height; ++y) {
      png_read_row(png_, row, nullptr);
      if (y >= window.y) copy_part(row, window, y - window.y, out);
    }
    return true;
  }

  bool read_all(uint8_t* rows, size_t row_bytes, const Window& window, uint8_t* out) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    const int height = static_cast<int>(png_get_image_height(png_, info_));
    for (int pass = 0; pass < 7; ++pass)
      for (int y = 0; y < height; ++y) png_read_row(png_, rows + static_cast<size_t>(y) * row_bytes, nullptr);
    for (int y = 0; y < window.height; ++y)
      copy_part(rows + static_cast<size_t>(window.y + y) * row_bytes, window, y, out);
    return true;
  }

  static void copy_part(const uint8_t* row, const Window& window, int y, uint8_t* out) {
    const size_t bytes = static_cast<size_t>(window.width) * 4;
    std::memcpy(out + static_cast<size_t>(y) * bytes, row + static_cast<size_t>(window.x) * 4, bytes);
  }

  Input input_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

}  // namespace

void decode_png(std::string_view bytes, const ChooseRegion& choose, Picture& out) {
  Png png(bytes);
  check_size(png.size());
  if (bytes.rfind("IEND") == std::string_view::npos)
    throw BadPicture(fmt::format("PNG data ends early, after {} bytes", bytes.size()));
  png.decode(choose(png.size()), out);
}

}  // namespace yoke::data
