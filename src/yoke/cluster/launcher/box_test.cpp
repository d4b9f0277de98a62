#include "yoke/cluster/launcher/box.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "yoke/base/text.h"

namespace yoke::cluster {
namespace {

using testing::HasSubstr;
using testing::Not;

BoxContent content() {
  BoxContent box;
  box.failure = {2,      "node1",  4711,
                 118,    "killed", "rank 2 on node1 (pid 4711) was killed by signal 9 (SIGKILL)",
                 "Look."};
  box.exit_code = 137;
  box.seconds = 12.34;
  return box;
}

size_t letters(const std::string& line) {
  return static_cast<size_t>(
      std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

void expect_width(const std::string& text, size_t width) {
  for (const std::string& line : split(text, '\n')) {
    if (line.empty()) continue;
    EXPECT_EQ(letters(line), width) << line;
  }
}

TEST(Box, SaysWhoWhereWhenWhatAndWhatToDo) {
  std::string text = draw_box(content(), false);
  for (const char* part :
       {"rank 2 on node1, pid 4711", "step        118", "what        was killed by signal 9 (SIGKILL)",
        "what to do  Look.", "exit code 137, after 12.3 s"})
    EXPECT_THAT(text, HasSubstr(part));
  expect_width(text, 80);
}

TEST(Box, LongAndHostileTextStaysInside) {
  BoxContent box = content();
  box.failure.what =
      std::string(300, 'w') + " and words that go on and on and on and on and on and on and on and on";
  box.last_lines = {"\033[31mred\033[0m\r\a", std::string(500, 'x'), "\xc3\xa4\xc3\xb6", "\xff\xfe", ""};
  for (bool utf8 : {false, true}) {
    std::string text = draw_box(box, utf8);
    expect_width(text, 80);
    EXPECT_THAT(text, Not(HasSubstr("\033")));
    EXPECT_THAT(text, Not(HasSubstr("\r")));
  }
  std::string plain = draw_box(box, false);
  EXPECT_TRUE(
      std::all_of(plain.begin(), plain.end(), [](char c) { return static_cast<unsigned char>(c) < 128; }));
}

TEST(Box, TorchrunsFormIsKept) {
  FailureReport failure = content().failure;
  failure.host = "\xff";  // not UTF-8
  auto document = nlohmann::json::parse(error_file_text(failure, 1.7e9));
  EXPECT_THAT(document["message"]["message"].get<std::string>(), HasSubstr("was killed by signal 9"));
  EXPECT_EQ(document["message"]["extraInfo"]["timestamp"], "1700000000");
}

}  // namespace
}  // namespace yoke::cluster
