// Keys and cryptographic functions (OpenSSL). Keys are excluded from core dumps and wiped.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

namespace yoke::net {

using Bytes = std::span<const std::byte>;
using Digest = std::array<std::byte, 32>;

class Secret {
 public:
  static Secret random();
  // Any file of at least 16 bytes that others cannot read (mode 0600 or stricter). Throws ConfigError with
  // the chmod command to use.
  static Secret from_file(const std::filesystem::path& file);
  // 64 hexadecimal digits, as passed to child processes. Throws ConfigError.
  static Secret from_text(const std::string& text);
  // A publicly known key, for --insecure: the same handshake without authentication.
  static Secret known_to_all();
  std::string to_text() const;

  ~Secret() = default;
  Secret(const Secret&);
  Secret& operator=(const Secret&);
  Secret(Secret&&) noexcept = default;
  Secret& operator=(Secret&&) noexcept = default;

  // HMAC-SHA256 over the concatenated parts.
  Digest sign(std::initializer_list<Bytes> parts) const;

 private:
  struct Wipe {
    void operator()(std::byte* key) const;
  };
  Secret();
  std::unique_ptr<std::byte[], Wipe> key_;  // 32 bytes
};

Digest sha256(Bytes data);
bool equal_in_constant_time(Bytes a, Bytes b);
void fill_random(std::span<std::byte> bytes);

// The bytes of a string.
inline Bytes as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace yoke::net
