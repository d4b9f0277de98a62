#include "yoke/checkpoint/format/digest.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke::checkpoint::format {
namespace {

std::string to_hex(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

struct Digest::State {
  XXH3_state_t xxh;
};

Digest::Digest() : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(&state_->xxh);
}
Digest::~Digest() = default;

void Digest::update(const void* data, size_t bytes) {
  XXH3_128bits_update(&state_->xxh, data, bytes);
}

std::string Digest::hex() const {
  return to_hex(XXH3_128bits_digest(&state_->xxh));
}

std::string digest_of(std::string_view bytes) {
  return to_hex(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string digest_of_file(const std::filesystem::path& path) {
  // Read instead of mapped: a failing disk must become an error, not a signal.
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) throw ConfigError("{}: cannot open: {}.", path.string(), describe_errno(errno));
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  std::vector<char> chunk(size_t{1} << 20);
  Digest digest;
  while (true) {
    ssize_t got = ::read(fd.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw ConfigError("{}: cannot read: {}.", path.string(), describe_errno(errno));
    if (got == 0) return digest.hex();
    digest.update(chunk.data(), static_cast<size_t>(got));
  }
}

bool is_digest(std::string_view text) {
  return text.size() == 32 &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace yoke::checkpoint::format
