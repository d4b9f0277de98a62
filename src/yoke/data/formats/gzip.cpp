#include "yoke/data/formats/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <new>

#include "yoke/base/error.h"
#include "yoke/data/formats/bytes.h"

namespace yoke::data {
namespace {

// zlib's state, released on every exit.
class Inflater {
 public:
  Inflater() {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  z_stream& stream() { return stream_; }

 private:
  z_stream stream_{};
};

// Decompresses one member from `bytes[at]`, appends to `out`, and returns where the next one would start.
size_t unpack_member(Inflater& inflater, std::string_view bytes, size_t at, std::string& out,
                     const std::string& file, size_t limit) {
  z_stream& z = inflater.stream();
  char chunk[1 << 16];
  while (true) {
    // avail_in has 32 bits; larger files are passed in pieces.
    const auto given = static_cast<uInt>(std::min<size_t>(bytes.size() - at, 1u << 30));
    z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + at));
    z.avail_in = given;
    z.next_out = reinterpret_cast<Bytef*>(chunk);
    z.avail_out = sizeof chunk;
    const int result = inflate(&z, Z_NO_FLUSH);
    at += given - z.avail_in;
    const size_t got = sizeof chunk - z.avail_out;
    if (got > limit - out.size()) {
      throw ConfigError("{}, byte {}: unpacks to more than the {} bytes accepted. Is it the right file?",
                        file, at, limit);
    }
    out.append(chunk, got);
    if (result == Z_STREAM_END) return at;
    if (result == Z_MEM_ERROR) throw std::bad_alloc();
    if (result != Z_OK && result != Z_BUF_ERROR) {
      throw ConfigError("{}, byte {}: damaged gzip data ({}). Download the file again.", file, at,
                        z.msg != nullptr ? z.msg : "no reason given");
    }
    if (at == bytes.size() && got < sizeof chunk) {
      throw ConfigError("{}, byte {}: the gzip data is truncated. Download the file again.", file, at);
    }
  }
}

}  // namespace

bool is_gzip(std::string_view bytes) {
  return bytes.substr(0, 2) == "\x1f\x8b";
}

std::string unpack_gzip(std::string_view bytes, const std::string& file, int64_t limit) {
  std::string out;
  Inflater inflater;
  size_t at = 0;
  do {
    if (!is_gzip(bytes.substr(at))) {
      throw ConfigError("{}, byte {}: expected gzip data (1f 8b), found {}.", file, at,
                        at == bytes.size() ? "the end of the file" : quote(bytes.substr(at, 2)));
    }
    at = unpack_member(inflater, bytes, at, out, file, static_cast<size_t>(limit));
    inflateReset(&inflater.stream());
  } while (at < bytes.size());
  return out;
}

}  // namespace yoke::data
