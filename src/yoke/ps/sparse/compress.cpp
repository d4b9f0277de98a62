#include "yoke/ps/sparse/compress.h"

#include <zstd.h>

#include <memory>

#include "yoke/base/error.h"

namespace yoke::ps::sparse {
namespace {

constexpr int kLevel = 1;  // the wire waits for it

ZSTD_CCtx* compressor() {
  thread_local std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> own(ZSTD_createCCtx(), &ZSTD_freeCCtx);
  return own.get();
}

ZSTD_DCtx* decompressor() {
  thread_local std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> own(ZSTD_createDCtx(), &ZSTD_freeDCtx);
  return own.get();
}

}  // namespace

std::vector<std::byte> compress(std::span<const std::byte> values) {
  if (values.size() < 2 || compressor() == nullptr) return {};
  std::vector<std::byte> frame(values.size() - 1);
  const size_t bytes =
      ZSTD_compressCCtx(compressor(), frame.data(), frame.size(), values.data(), values.size(), kLevel);
  if (ZSTD_isError(bytes) != 0) return {};  // it does not fit
  frame.resize(bytes);
  return frame;
}

void decompress(std::span<const std::byte> from, std::span<std::byte> into) {
  YOKE_CHECK(decompressor() != nullptr, "no memory for decompression");
  const size_t bytes =
      ZSTD_decompressDCtx(decompressor(), into.data(), into.size(), from.data(), from.size());
  if (ZSTD_isError(bytes) != 0)
    throw CommError("{} bytes of compressed values are invalid: {}", from.size(), ZSTD_getErrorName(bytes));
  if (bytes != into.size())
    throw CommError("{} bytes of compressed values are {} bytes, not {}", from.size(), bytes, into.size());
}

}  // namespace yoke::ps::sparse
