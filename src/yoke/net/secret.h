// Keys and what is computed with them (OpenSSL). Keys are kept out of core dumps and wiped.
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
  // Any file of at least 16 bytes that others may not read (mode 0600 or stricter). Throws ConfigError with
  // the chmod to type.
  static Secret from_file(const std::filesystem::path& file);
  // 64 hexadecimal digits, as handed to children. Throws ConfigError.
  static Secret from_text(const std::string& text);
  // Known to everybody: for --insecure, where the same handshake runs without a proof.
  static Secret known_to_all();
  std::string to_text() const;

  ~Secret() = default;
  Secret(const Secret&);
  Secret& operator=(const Secret&);
  Secret(Secret&&) noexcept = default;
  Secret& operator=(Secret&&) noexcept = default;

  // HMAC-SHA256 over the parts, one after the other.
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

// The bytes of a text.
inline Bytes as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace yoke::net
