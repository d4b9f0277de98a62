// The key pair of a peer (Ed25519, OpenSSL). Its public key is the peer's name in a run: the peer proves it
// when it joins, and keeps its place and its record when it returns.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "yoke/net/secret.h"

namespace yoke::collab {

class Identity {
 public:
  static Identity random();
  // Reads the key from `file`, which is created with mode 0600 if it does not exist. Throws ConfigError: not
  // readable, not a key, or readable by others.
  static Identity from_file(const std::filesystem::path& file);

  // 64 hexadecimal digits.
  const std::string& public_key() const { return public_key_; }
  // 128 hexadecimal digits.
  std::string sign(const std::string& text) const;

 private:
  struct Free {
    void operator()(void* key) const;
  };
  explicit Identity(std::unique_ptr<void, Free> key);
  std::unique_ptr<void, Free> key_;
  std::string public_key_;
};

// Whether `signature` over `text` was made with the private key of `public_key`. False for malformed ones.
bool verify_signature(const std::string& public_key, const std::string& text, const std::string& signature);

// The first eight digits, for people.
std::string short_name(const std::string& public_key);

}  // namespace yoke::collab
