#include "yoke/cluster/launcher/hosts.h"

#include <gmock/gmock.h>

#include "yoke/base/error.h"

namespace yoke::cluster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Hosts, AListWithAndWithoutSlots) {
  EXPECT_THAT(parse_hosts("a:4, b ,[fd00::1]:2,10.0.0.1:3"),
              ElementsAre(Host{"a", 4}, Host{"b", 1}, Host{"fd00::1", 2}, Host{"10.0.0.1", 3}));
}

TEST(Hosts, BadListsAreNamed) {
  for (const char* text : {"", ":", "a:", "a:0", "a:-1", "a:x", "a:4:4", "a b", "a:99999999"})
    EXPECT_THAT(refusal([&] { parse_hosts(text); }), HasSubstr("-H")) << text;
}

TEST(Hosts, AFileInEitherForm) {
  EXPECT_THAT(parse_hostfile("# machines\n\na slots=4  # four\nb:2\nc\n", "f"),
              ElementsAre(Host{"a", 4}, Host{"b", 2}, Host{"c", 1}));
  EXPECT_THAT(refusal([] { parse_hostfile("a\nb slots=x\n", "f"); }), HasSubstr("f:2"));
  EXPECT_THAT(refusal([] { parse_hostfile("a\nb cores=2\n", "f"); }), HasSubstr("f:2"));
  EXPECT_THAT(refusal([] { parse_hostfile("# none\n", "f"); }), HasSubstr("no hosts"));
}

TEST(Hosts, ThisMachineIsFoundByNameOrAddress) {
  EXPECT_EQ(find_this_host({{"elsewhere.invalid", 1}, {"localhost", 1}}), 1);
  EXPECT_EQ(find_this_host({{"127.0.0.1", 1}, {"elsewhere.invalid", 1}}), 0);
  EXPECT_THAT(refusal([] { find_this_host({{"elsewhere.invalid", 1}}); }), HasSubstr("none of the hosts"));
  EXPECT_THAT(refusal([] {
                find_this_host({{"localhost", 1}, {"127.0.0.1", 1}});
              }),
              HasSubstr("more than one"));
}

TEST(Hosts, LoopbackAddressesAreKnown) {
  EXPECT_TRUE(is_loopback_only("127.0.0.1"));
  EXPECT_TRUE(is_loopback_only("127.1.2.3"));
  EXPECT_FALSE(is_loopback_only("192.0.2.1"));
  EXPECT_FALSE(is_loopback_only("elsewhere.invalid"));
}

TEST(Hosts, WordsSurviveAShell) {
  EXPECT_EQ(shell_quoted("--lr=0.1"), "--lr=0.1");
  EXPECT_EQ(shell_quoted("a b"), "'a b'");
  EXPECT_EQ(shell_quoted("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_quoted("$x"), "'$x'");
}

}  // namespace
}  // namespace yoke::cluster
