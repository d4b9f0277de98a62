#include "yoke/collab/ticket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke::collab {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Ticket example() {
  Ticket ticket;
  ticket.meeting = net::parse_address("example.org:7000");
  ticket.run_id = "albert-1";
  ticket.key = net::Secret::from_text(std::string(64, 'b'));
  return ticket;
}

TEST(Ticket, TextAndBack) {
  const std::string text = to_text(example());
  EXPECT_EQ(text, "yoke1/example.org:7000/albert-1/" + std::string(64, 'b') + text.substr(text.rfind('/')));
  EXPECT_EQ(to_text(parse_ticket("  " + text + "\n")), text);
  Ticket six = example();
  six.meeting = net::parse_address("[::1]:80");
  EXPECT_EQ(parse_ticket(to_text(six)).meeting, six.meeting);
}

TEST(Ticket, EveryLostCharacterIsNoticed) {
  const std::string text = to_text(example());
  for (size_t i = 0; i < text.size(); ++i) {
    std::string cut = text;
    cut.erase(i, 1);
    EXPECT_THROW(parse_ticket(cut), ConfigError) << cut;
    EXPECT_THROW(parse_ticket(text.substr(0, i)), ConfigError) << i;
  }
}

TEST(Ticket, ErrorsNameTheProblem) {
  auto error = [](const std::string& text, const char* part) {
    EXPECT_THAT([&] { parse_ticket(text); }, ThrowsMessage<ConfigError>(HasSubstr(part))) << text;
  };
  error("", "does not start with 'yoke1/'");
  error("hello", "does not start with 'yoke1/'");
  error("yoke1/a:1/b", "3 parts between slashes instead of 5");
  error(to_text(example()) + "0", "checksum is wrong");
  error(std::string(5000, 'y'), "5000 characters");
}

TEST(Ticket, AFileIsForItsOwnerOnly) {
  fs::path file = fs::temp_directory_path() / fs::path("yoke_ticket_" + std::to_string(::getpid()));
  std::ofstream(file) << "old";
  fs::permissions(file, fs::perms::all);
  write_ticket(file, example());
  EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(to_text(read_ticket(file.string())), to_text(example()));
  EXPECT_EQ(to_text(read_ticket(to_text(example()))), to_text(example()));
  fs::remove(file);
  EXPECT_THAT([&] { read_ticket(file.string()); }, ThrowsMessage<ConfigError>(HasSubstr(file.string())));
}

TEST(Ticket, ConnectionsAreEncrypted) {
  EXPECT_EQ(job_ticket(example()).protection, net::Protection::kEncrypted);
}

TEST(Ticket, EtcdMayKnowWhereTheRunMeets) {
  Ticket ticket;
  ticket.run_id = "r";
  ticket.etcd = {{.host = "a", .port = 2379}, {.host = "b", .port = 1}};
  const std::string text = to_text(ticket);
  EXPECT_THAT(text, ::testing::HasSubstr("/etcd:a:2379,b:1/r/"));
  const Ticket parsed = parse_ticket(text);
  EXPECT_EQ(parsed.etcd, ticket.etcd);
  EXPECT_EQ(to_text(parsed), text);
}

}  // namespace
}  // namespace yoke::collab
