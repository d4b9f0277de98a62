#include "yoke/data/formats/text/token_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "yoke/base/error.h"
#include "yoke/data/formats/tokens.h"

namespace yoke::data {
namespace {

constexpr size_t kBuffer = 1 << 20;

}  // namespace

TokenWriter::TokenWriter(std::filesystem::path target, int width)
    : target_(std::move(target)), width_(width) {
  temporary_ = target_;
  temporary_ += fmt::format(".tmp{}", ::getpid());
  fd_ = FileDescriptor(::open(temporary_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd_) fail("cannot write", errno);
  buffer_.reserve(kBuffer + 4);
}

TokenWriter::~TokenWriter() {
  if (!committed_ && fd_) ::unlink(temporary_.c_str());
}

void TokenWriter::fail(const char* what, int error) const {
  throw ConfigError("{}: {}: {}. Check the folder and its free space.", target_.string(), what,
                    describe_errno(error));
}

void TokenWriter::put(uint32_t token) {
  for (int i = 0; i < width_; ++i) buffer_ += static_cast<char>(static_cast<uint8_t>(token >> (8 * i)));
  if (buffer_.size() >= kBuffer) flush();
  ++count_;
}

void TokenWriter::add(std::span<const TokenId> tokens) {
  for (TokenId token : tokens) put(static_cast<uint32_t>(token));
}

void TokenWriter::add_bytes(std::string_view text) {
  for (char byte : text) put(static_cast<uint8_t>(byte));
}

void TokenWriter::flush() {
  write(buffer_);
  buffer_.clear();
}

void TokenWriter::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd_.get(), bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("cannot write", errno);
    bytes.remove_prefix(static_cast<size_t>(put));
  }
}

void TokenWriter::move_tail(int64_t first, TokenWriter& other) {
  flush();
  const MappedFile mapped(temporary_);
  other.write(mapped.view().substr(static_cast<size_t>(first * width_)));
  other.count_ = count_ - first;
  if (::ftruncate(fd_.get(), first * width_) != 0) fail("cannot truncate", errno);
  count_ = first;
}

void TokenWriter::finish(int64_t vocabulary) {
  flush();
  if (::fsync(fd_.get()) != 0) fail("cannot sync", errno);
  const MappedFile mapped(temporary_);
  const TokenFile read = parse_tokens(mapped.view(), target_.string(), vocabulary);
  if (read.width != width_ || read.count() != count_)
    throw ConfigError(
        "{}: the text begins like another format: every second byte is 0. Convert it to UTF-8 (it looks like "
        "UTF-16 or a binary file).",
        target_.string());
}

void TokenWriter::commit() {
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail("cannot rename to", errno);
  committed_ = true;
}

}  // namespace yoke::data
