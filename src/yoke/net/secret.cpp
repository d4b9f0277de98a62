#include "yoke/net/secret.h"

#include <fcntl.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <sys/stat.h>

#include <cstring>

#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke::net {
namespace {

constexpr size_t kKeyBytes = 32;
constexpr int64_t kMaxFileBytes = 64 << 10;
constexpr const char* kDigits = "0123456789abcdef";

const unsigned char* data_of(Bytes bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

// OpenSSL's secure heap: locked if allowed, excluded from core dumps, wiped.
void prepare_key_heap() {
  static const bool ready = [] {
    if (::CRYPTO_secure_malloc_initialized() == 0) ::CRYPTO_secure_malloc_init(64 << 10, 32);
    return true;
  }();
  (void)ready;
}

int digit_value(char c) {
  const char* at = c == 0 ? nullptr : std::strchr(kDigits, std::tolower(static_cast<unsigned char>(c)));
  return at == nullptr ? -1 : static_cast<int>(at - kDigits);
}

struct FreeMac {
  void operator()(EVP_MAC_CTX* context) const { ::EVP_MAC_CTX_free(context); }
};

EVP_MAC* hmac() {
  static EVP_MAC* mac = ::EVP_MAC_fetch(nullptr, "HMAC", nullptr);
  YOKE_CHECK(mac != nullptr, "this OpenSSL has no HMAC");
  return mac;
}

}  // namespace

Secret::Secret() {
  prepare_key_heap();
  void* memory = ::OPENSSL_secure_zalloc(kKeyBytes);
  // The secure heap is full (thousands of copies): use ordinary memory, which is wiped as well.
  if (memory == nullptr) memory = ::OPENSSL_zalloc(kKeyBytes);
  if (memory == nullptr) throw std::bad_alloc();
  key_.reset(static_cast<std::byte*>(memory));
}

void Secret::Wipe::operator()(std::byte* key) const {
  ::OPENSSL_secure_clear_free(key, kKeyBytes);
}

Secret::Secret(const Secret& other) : Secret() {
  std::memcpy(key_.get(), other.key_.get(), kKeyBytes);
}

Secret& Secret::operator=(const Secret& other) {
  if (this != &other) *this = Secret(other);
  return *this;
}

Secret Secret::random() {
  Secret secret;
  fill_random({secret.key_.get(), kKeyBytes});
  return secret;
}

Secret Secret::known_to_all() {
  return Secret();
}

Secret Secret::from_file(const std::filesystem::path& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0)
    throw ConfigError(
        "secret file {}: {}. Next: head -c 32 /dev/urandom > {} && chmod 600 {}, and the same file on "
        "every machine",
        file.string(), describe_errno(errno), file.string(), file.string());
  if (!S_ISREG(info.st_mode)) throw ConfigError("secret file {}: not a regular file", file.string());
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    throw ConfigError("secret file {}: accessible to other users (mode {:04o}). Next: chmod 600 {}",
                      file.string(), info.st_mode & 07777, file.string());
  std::string content = read_file(file, kMaxFileBytes);
  if (content.size() < 16)
    throw ConfigError("secret file {}: {} bytes, at least 16 are needed. Next: head -c 32 /dev/urandom > {}",
                      file.string(), content.size(), file.string());
  // Hashed, so that a file of any length and format gives a key of the right size.
  Digest key = sha256(as_bytes(content));
  Secret secret;
  std::memcpy(secret.key_.get(), key.data(), kKeyBytes);
  ::OPENSSL_cleanse(key.data(), key.size());
  ::OPENSSL_cleanse(content.data(), content.size());
  return secret;
}

Secret Secret::from_text(const std::string& text) {
  if (text.size() != 2 * kKeyBytes)
    throw ConfigError("the job key has {} characters; it must be 64 hexadecimal digits", text.size());
  Secret secret;
  for (size_t i = 0; i < kKeyBytes; ++i) {
    int high = digit_value(text[2 * i]);
    int low = digit_value(text[2 * i + 1]);
    if (high < 0 || low < 0)
      throw ConfigError("the job key must be 64 hexadecimal digits; character {} is not hexadecimal",
                        2 * i + 1);
    secret.key_[i] = static_cast<std::byte>(high * 16 + low);
  }
  return secret;
}

std::string Secret::to_text() const {
  std::string text;
  text.reserve(2 * kKeyBytes);
  for (size_t i = 0; i < kKeyBytes; ++i) {
    auto value = static_cast<unsigned>(key_[i]);
    text += kDigits[value >> 4];
    text += kDigits[value & 15];
  }
  return text;
}

Digest Secret::sign(std::initializer_list<Bytes> parts) const {
  std::unique_ptr<EVP_MAC_CTX, FreeMac> context(::EVP_MAC_CTX_new(hmac()));
  char digest_name[] = "SHA256";
  OSSL_PARAM parameters[] = {::OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest_name, 0),
                             ::OSSL_PARAM_construct_end()};
  bool good = context != nullptr &&
              ::EVP_MAC_init(context.get(), data_of({key_.get(), kKeyBytes}), kKeyBytes, parameters) == 1;
  for (Bytes part : parts) good = good && ::EVP_MAC_update(context.get(), data_of(part), part.size()) == 1;
  Digest digest{};
  size_t length = 0;
  good = good && ::EVP_MAC_final(context.get(), reinterpret_cast<unsigned char*>(digest.data()), &length,
                                 digest.size()) == 1;
  YOKE_CHECK(good && length == digest.size(), "OpenSSL cannot compute HMAC-SHA256");
  return digest;
}

Digest sha256(Bytes data) {
  Digest digest{};
  unsigned length = 0;
  int good = ::EVP_Digest(data.data(), data.size(), reinterpret_cast<unsigned char*>(digest.data()), &length,
                          ::EVP_sha256(), nullptr);
  YOKE_CHECK(good == 1 && length == digest.size(), "OpenSSL cannot compute SHA-256");
  return digest;
}

bool equal_in_constant_time(Bytes a, Bytes b) {
  return a.size() == b.size() && ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void fill_random(std::span<std::byte> bytes) {
  YOKE_CHECK(
      ::RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(bytes.size())) == 1,
      "the system provides no random numbers");
}

}  // namespace yoke::net
