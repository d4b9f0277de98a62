#include "yoke/net/secret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "yoke/base/error.h"
#include "yoke/net/siphash.h"

namespace yoke::net {
namespace {

using ::testing::HasSubstr;

std::string hex(Bytes bytes) {
  std::string text;
  for (std::byte b : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(b));
  return text;
}

class SecretFile : public ::testing::Test {
 protected:
  SecretFile() : path_(::testing::TempDir() + fmt::format("yoke-secret-{}", ::getpid())) {}
  ~SecretFile() override { std::filesystem::remove(path_); }
  void write(const std::string& content, mode_t mode) {
    std::ofstream(path_) << content;
    ::chmod(path_.c_str(), mode);
  }
  std::string error() {
    try {
      Secret::from_file(path_);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }
  std::filesystem::path path_;
};

TEST_F(SecretFile, GivesTheSameKeyForTheSameBytes) {
  write("0123456789abcdef", 0600);
  EXPECT_EQ(Secret::from_file(path_).to_text(), Secret::from_file(path_).to_text());
  std::string first = Secret::from_file(path_).to_text();
  write("0123456789abcdeX", 0400);
  EXPECT_NE(Secret::from_file(path_).to_text(), first);
}

TEST_F(SecretFile, IsRefusedWhenOthersMayReadItOrItIsShortOrMissing) {
  EXPECT_THAT(error(), HasSubstr("head -c 32 /dev/urandom"));
  write("0123456789abcdef", 0640);
  EXPECT_THAT(error(), HasSubstr("chmod 600"));
  write("0123456789abcde", 0600);
  EXPECT_THAT(error(), HasSubstr("at least 16"));
}

TEST(Secret, TextReadsBack) {
  Secret secret = Secret::random();
  EXPECT_EQ(Secret::from_text(secret.to_text()).to_text(), secret.to_text());
  EXPECT_NE(Secret::random().to_text(), secret.to_text());
}

TEST(Secret, RefusesTextsThatAreNoKey) {
  EXPECT_THROW(Secret::from_text(""), ConfigError);
  EXPECT_THROW(Secret::from_text(std::string(63, 'a')), ConfigError);
  EXPECT_THROW(Secret::from_text(std::string(63, 'a') + "g"), ConfigError);
  EXPECT_THROW(Secret::from_text(std::string(63, 'a') + '\0'), ConfigError);
}

TEST(Secret, SignsAsHmacSha256) {
  // The expected value comes from Python's hmac module.
  Secret key = Secret::from_text("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
  std::string all = "what do ya want for nothing?";
  std::string head = all.substr(0, 7), tail = all.substr(7);
  EXPECT_EQ(hex(key.sign({as_bytes(all)})), hex(key.sign({as_bytes(head), as_bytes(tail)})));
  EXPECT_EQ(hex(key.sign({as_bytes(all)})),
            "099805f4ac310786968565c098db515cc50862b420ae31e20238312344bed36a");
}

TEST(SipHash, GivesThePublishedValue) {
  std::array<std::byte, 16> key;
  std::array<std::byte, 15> text;
  for (size_t i = 0; i < 16; ++i) key[i] = std::byte(i);
  for (size_t i = 0; i < 15; ++i) text[i] = std::byte(i);
  EXPECT_EQ(siphash(sip_key(key), text), 0xa129ca6149be45e5u);
}

TEST(SipHash, EqualsOpenSslForEveryLength) {
  std::array<std::byte, 16> key;
  fill_random(key);
  std::vector<std::byte> text(130);
  fill_random(text);
  EVP_MAC* mac = ::EVP_MAC_fetch(nullptr, "SIPHASH", nullptr);
  if (mac == nullptr) GTEST_SKIP() << "this OpenSSL has no SipHash";
  EVP_MAC_CTX* context = ::EVP_MAC_CTX_new(mac);
  size_t size = 8;
  OSSL_PARAM parameters[] = {::OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &size),
                             ::OSSL_PARAM_construct_end()};
  for (size_t length = 0; length <= text.size(); ++length) {
    uint64_t expected = 0;
    size_t written = 0;
    ASSERT_EQ(::EVP_MAC_init(context, reinterpret_cast<unsigned char*>(key.data()), 16, parameters), 1);
    ASSERT_EQ(::EVP_MAC_update(context, reinterpret_cast<unsigned char*>(text.data()), length), 1);
    ASSERT_EQ(::EVP_MAC_final(context, reinterpret_cast<unsigned char*>(&expected), &written, 8), 1);
    EXPECT_EQ(siphash(sip_key(key), Bytes(text).first(length)), expected) << length;
  }
  ::EVP_MAC_CTX_free(context);
  ::EVP_MAC_free(mac);
}

}  // namespace
}  // namespace yoke::net
