#include "yoke/collab/identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "yoke/base/error.h"

namespace yoke::collab {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Identity, OnlyTheHolderOfTheKeyCanSign) {
  Identity one = Identity::random(), other = Identity::random();
  EXPECT_NE(one.public_key(), other.public_key());
  const std::string signature = one.sign("hello");
  EXPECT_TRUE(verify_signature(one.public_key(), "hello", signature));
  EXPECT_FALSE(verify_signature(one.public_key(), "hallo", signature));
  EXPECT_FALSE(verify_signature(other.public_key(), "hello", signature));
}

TEST(Identity, MalformedKeysAndSignaturesAreInvalid) {
  Identity one = Identity::random();
  const std::string signature = one.sign("x");
  for (const std::string& key :
       {std::string(), std::string(64, 'z'), one.public_key() + "0", std::string(64, 'f')})
    EXPECT_FALSE(verify_signature(key, "x", signature)) << key;
  for (const std::string& bad : {std::string(), signature.substr(2), std::string(128, '0')})
    EXPECT_FALSE(verify_signature(one.public_key(), "x", bad)) << bad;
}

TEST(Identity, AFileKeepsTheKey) {
  fs::path file = fs::temp_directory_path() / ("yoke_identity_" + std::to_string(::getpid()));
  fs::remove(file);
  const std::string name = Identity::from_file(file).public_key();
  EXPECT_EQ(Identity::from_file(file).public_key(), name);
  fs::permissions(file, fs::perms::all);
  EXPECT_THAT([&] { Identity::from_file(file); }, ThrowsMessage<ConfigError>(HasSubstr("chmod 600")));
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  std::ofstream(file) << "short";
  EXPECT_THAT([&] { Identity::from_file(file); }, ThrowsMessage<ConfigError>(HasSubstr("not a peer's key")));
  fs::remove(file);
  EXPECT_THAT([&] { Identity::from_file("/nowhere/key"); },
              ThrowsMessage<ConfigError>(HasSubstr("/nowhere/key")));
}

}  // namespace
}  // namespace yoke::collab
