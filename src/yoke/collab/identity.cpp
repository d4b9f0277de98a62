#include "yoke/collab/identity.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/text.h"

namespace yoke::collab {
namespace {

constexpr size_t kKeyBytes = 32;
constexpr size_t kSignatureBytes = 64;
using Raw = std::vector<unsigned char>;

std::string to_hex(const Raw& bytes) {
  std::string text;
  for (unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::optional<Raw> from_hex(const std::string& text, size_t bytes) {
  if (text.size() != 2 * bytes || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    return std::nullopt;
  Raw raw(bytes);
  for (size_t i = 0; i < bytes; ++i)
    raw[i] = static_cast<unsigned char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  return raw;
}

struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct FreeDigest {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using DigestContext = std::unique_ptr<EVP_MD_CTX, FreeDigest>;

const unsigned char* bytes_of(const std::string& text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

Raw random_seed() {
  Raw seed(kKeyBytes);
  net::fill_random(std::as_writable_bytes(std::span(seed)));
  return seed;
}

void create_key_file(const std::filesystem::path& file) {
  FileDescriptor fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const std::string text = to_hex(random_seed()) + "\n";
  if (!fd || ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw ConfigError("{}: could not create the peer's key: {}", file.string(), describe_errno(errno));
}

}  // namespace

void Identity::Free::operator()(void* key) const {
  EVP_PKEY_free(static_cast<EVP_PKEY*>(key));
}

Identity::Identity(std::unique_ptr<void, Free> key) : key_(std::move(key)) {
  Raw raw(kKeyBytes);
  size_t length = raw.size();
  YOKE_CHECK(EVP_PKEY_get_raw_public_key(static_cast<EVP_PKEY*>(key_.get()), raw.data(), &length) == 1,
             "no public key");
  public_key_ = to_hex(raw);
}

namespace {
void* private_key(const Raw& seed) {
  void* key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, seed.data(), seed.size());
  YOKE_CHECK(key != nullptr, "OpenSSL has no Ed25519");
  return key;
}
}  // namespace

Identity Identity::random() {
  return Identity(std::unique_ptr<void, Free>(private_key(random_seed())));
}

Identity Identity::from_file(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) create_key_file(file);
  struct stat info {};
  if (::stat(file.c_str(), &info) == 0 && (info.st_mode & 077) != 0)
    throw ConfigError("{}: others can read this peer's private key. Next: chmod 600 {}", file.string(),
                      file.string());
  std::optional<Raw> seed = from_hex(trim(read_file(file, 1024)), kKeyBytes);
  if (!seed)
    throw ConfigError(
        "{}: not a peer's key (64 hexadecimal digits). Next: give another file; a missing one "
        "is created.",
        file.string());
  return Identity(std::unique_ptr<void, Free>(private_key(*seed)));
}

std::string Identity::sign(const std::string& text) const {
  DigestContext context(EVP_MD_CTX_new());
  Raw signature(kSignatureBytes);
  size_t length = signature.size();
  auto* key = static_cast<EVP_PKEY*>(key_.get());
  YOKE_CHECK(EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key) == 1 &&
                 EVP_DigestSign(context.get(), signature.data(), &length, bytes_of(text), text.size()) == 1,
             "could not sign");
  return to_hex(signature);
}

bool verify_signature(const std::string& public_key, const std::string& text, const std::string& signature) {
  std::optional<Raw> raw = from_hex(public_key, kKeyBytes);
  std::optional<Raw> signed_bytes = from_hex(signature, kSignatureBytes);
  if (!raw || !signed_bytes) return false;
  std::unique_ptr<EVP_PKEY, FreeKey> key(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, raw->data(), raw->size()));
  DigestContext context(EVP_MD_CTX_new());
  return key != nullptr && EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
         EVP_DigestVerify(context.get(), signed_bytes->data(), signed_bytes->size(), bytes_of(text),
                          text.size()) == 1;
}

std::string short_name(const std::string& public_key) {
  return public_key.substr(0, 8);
}

}  // namespace yoke::collab
