#include "yoke/metrics/console.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <string>

#include "yoke/base/file.h"
#include "yoke/base/log.h"
#include "yoke/metrics/progress_bar.h"
#include "yoke/metrics/record_line.h"

namespace yoke::metrics {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// What a console wrote, under a clock that the test moves.
struct Screen {
  double time = 100;
  int columns = 80;
  std::string text;

  ConsoleOptions options(bool terminal) {
    return {.terminal = terminal,
            .width = [this] { return columns; },
            .clock = [this] { return time; },
            .out = [this](std::string_view piece) { text += piece; }};
  }
  int64_t count(const std::string& piece) const {
    int64_t found = 0;
    for (size_t at = text.find(piece); at != std::string::npos; at = text.find(piece, at + 1)) ++found;
    return found;
  }
  std::string take() { return std::exchange(text, ""); }
};

Record record_at(int64_t step) {
  return {.step = step,
          .loss = 4.82134,
          .lr = 0.05,
          .samples_per_s = 21034,
          .grad_norm = 1.02,
          .memory_bytes = int64_t{966367641}};
}

// Columns that a UTF-8 text without escape codes takes.
int columns_of(const std::string& text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

TEST(RecordLine, LooksLikeTorchtitans) {
  EXPECT_EQ(to_line(record_at(10), {}),
            "step: 10  loss: 4.8213  lr: 0.05  grad_norm: 1.02  memory: 0.9GiB  samples/s: 21,034");
}

TEST(RecordLine, LeavesOutWhatMattersLeastToFit) {
  LineStyle style{.width = 80, .total_steps = 1000, .seconds_left = 80};
  EXPECT_EQ(to_line(record_at(10), style),
            "step: 10/1000  loss: 4.8213  lr: 0.05  samples/s: 21,034  left: 01:20");
  style.width = 5;
  EXPECT_EQ(to_line(record_at(10), style), "step: 10/1000");
}

TEST(RecordLine, TellsEvaluationAndTokens) {
  Record record = record_at(10);
  record.accuracy = 0.9102;
  record.eval_loss = 0.25;
  record.tokens_per_s = 1234567;
  std::string line = to_line(record, {.tokens = true});
  EXPECT_THAT(line, HasSubstr("eval_loss: 0.2500  accuracy: 91.02%"));
  EXPECT_THAT(line, HasSubstr("tokens/s: 1,234,567"));
  EXPECT_THAT(line, Not(HasSubstr("samples/s")));
}

TEST(RecordLine, ShowsALossThatIsNotANumber) {
  Record record = record_at(10);
  record.loss = std::nan("");
  EXPECT_THAT(to_line(record, {}), HasSubstr("loss: nan"));
}

TEST(ProgressBar, LooksLikeTqdms) {
  Progress progress{.done = 37, .total = 100, .elapsed = 12.4, .per_second = 2.97, .note = "loss 0.31"};
  EXPECT_EQ(progress_bar(progress, 57, false), " 37%|███▋      | 37/100 [00:12<00:21, 2.97it/s] loss 0.31");
}

TEST(ProgressBar, FitsEveryWidth) {
  Progress progress{.done = 37000,
                    .total = 100000,
                    .elapsed = 4000,
                    .per_second = 0.1,
                    .note = "loss 0.31, 21.0k samples/s"};
  for (int64_t total : {100000, 0}) {
    progress.total = total;
    for (int columns = 0; columns < 200; ++columns) {
      EXPECT_LE(columns_of(progress_bar(progress, columns, false)), columns);
    }
  }
}

TEST(ProgressBar, IsFullAtTheEndAndEmptyAtTheStart) {
  EXPECT_THAT(progress_bar({.done = 0, .total = 8}, 40, false), StartsWith("  0%|   "));
  EXPECT_THAT(progress_bar({.done = 8, .total = 8, .per_second = 1}, 40, false), StartsWith("100%|███"));
  EXPECT_THAT(progress_bar({.done = 9, .total = 8, .per_second = 1}, 40, false), StartsWith("100%|███"));
  EXPECT_THAT(progress_bar({.done = 0, .total = 8}, 60, false), HasSubstr("<?, ?it/s]"));
}

TEST(ProgressBar, CountsWithoutATotalAndTellsSlowSteps) {
  EXPECT_EQ(progress_bar({.done = 37, .elapsed = 3723, .per_second = 0.5, .note = "x"}, 80, false),
            "37it [1:02:03, 2.00s/it] x");
}

TEST(ProgressBar, IsColouredOnlyWhenAsked) {
  Progress progress{.done = 1, .total = 2, .per_second = 1};
  EXPECT_THAT(progress_bar(progress, 80, true), HasSubstr("\033[36m"));
  EXPECT_THAT(progress_bar(progress, 80, false), Not(HasSubstr("\033")));
}

TEST(Console, WithoutATerminalWritesNoControlCharacters) {
  Screen screen;
  Console console(screen.options(false));
  console.start({.total_steps = 100});
  for (int64_t step = 1; step <= 100; ++step) {
    screen.time += 1;
    console.tick(step, 64);
    console.write(record_at(step));
  }
  console.finish();
  EXPECT_THAT(screen.text, Not(HasSubstr("\r")));
  EXPECT_THAT(screen.text, Not(HasSubstr("\033")));
}

TEST(Console, WithoutATerminalWritesFirstLastAndNowAndThen) {
  Screen screen;
  Console console(screen.options(false));
  console.start({.total_steps = 100});
  for (int64_t step = 1; step <= 100; ++step) {
    screen.time += 0.1;
    console.write(record_at(step));
  }
  EXPECT_THAT(screen.text, StartsWith("step: 1/100 "));
  EXPECT_THAT(screen.text, Not(HasSubstr("step: 100/100")));
  console.finish();
  EXPECT_EQ(screen.count("step: 100/100"), 1);
  EXPECT_LE(screen.count("\n"), 2 + 10 / 2);
  EXPECT_GE(screen.count("\n"), 4);
  console.finish();
  EXPECT_EQ(screen.count("step: 100/100"), 1);
}

TEST(Console, WithoutATerminalTellsEveryRecordThatIsRareAndEveryEvaluation) {
  Screen screen;
  Console console(screen.options(false));
  console.start({});
  for (int64_t step : {10, 20, 30}) {
    screen.time += 5;
    console.write(record_at(step));
  }
  EXPECT_EQ(screen.count("\n"), 3);
  Record evaluated = record_at(31);
  evaluated.accuracy = 0.5;
  console.write(evaluated);
  EXPECT_EQ(screen.count("accuracy: 50.00%"), 1);
  console.finish();
  EXPECT_EQ(screen.count("\n"), 4);
}

TEST(Console, WithoutATerminalBreaksALongSilence) {
  Screen screen;
  Console console(screen.options(false));
  console.start({.total_steps = 100});
  for (int64_t step = 1; step <= 35; ++step) {
    screen.time += 1;
    console.tick(step, 64);
  }
  EXPECT_EQ(screen.text, "step: 30/100  samples/s: 64  left: 01:10\n");
}

TEST(Console, OnATerminalRedrawsAtMostTenTimesASecond) {
  Screen screen;
  Console console(screen.options(true));
  console.start({.total_steps = 1000});
  for (int64_t step = 1; step <= 1000; ++step) {
    screen.time += 0.001;
    console.tick(step, 64);
  }
  EXPECT_LE(screen.count("\r"), 11);
  EXPECT_GE(screen.count("\r"), 9);
  console.finish();
  EXPECT_THAT(screen.text, HasSubstr("1000/1000"));
  EXPECT_EQ(screen.text.back(), '\n');
}

TEST(Console, OnATerminalDrawsLossAndSpeedAndFollowsTheWidth) {
  Screen screen;
  Console console(screen.options(true));
  console.start({.total_steps = 100});
  console.write(record_at(1));
  screen.time += 1;
  screen.take();
  console.tick(10, 21034);
  std::string drawn = screen.take();
  EXPECT_THAT(drawn, HasSubstr(" 10/100 [00:01<00:09, 10.00it/s] loss 4.821, 21.0k samples/s"));
  EXPECT_LE(columns_of(drawn) - columns_of("\r\033[K"), 79);
  screen.columns = 40;
  screen.time += 1;
  console.tick(20, 21034);
  EXPECT_LE(columns_of(screen.take()) - columns_of("\r\033[K"), 39);
}

TEST(Console, OnATerminalMakesWayForLogLines) {
  Screen screen;
  log::Level before = log::level();
  Console console(screen.options(true));
  console.start({.total_steps = 100});
  screen.take();
  ::testing::internal::CaptureStderr();
  log::set_level(log::Level::kInfo);
  log::info("checkpoint saved");
  log::set_level(before);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "checkpoint saved\n");
  EXPECT_EQ(screen.take(), "\r\033[K");
  screen.time += 0.2;
  console.tick(1, 64);
  EXPECT_THAT(screen.take(), HasSubstr(" 1/100"));
}

TEST(Console, OnATerminalLeavesALineForEachEvaluation) {
  Screen screen;
  Console console(screen.options(true));
  console.start({.total_steps = 100});
  screen.take();
  Record record = record_at(50);
  console.write(record);
  EXPECT_EQ(screen.take(), "");
  record.accuracy = 0.75;
  console.write(record);
  EXPECT_THAT(screen.text, StartsWith("\r\033[Kstep: 50/100"));
  EXPECT_THAT(screen.text, HasSubstr("accuracy: 75.00%"));
  EXPECT_EQ(screen.count("\n"), 1);
}

TEST(Console, EndsItsLineEvenWhenARunFails) {
  Screen screen;
  {
    Console console(screen.options(true));
    console.start({.total_steps = 100});
  }
  EXPECT_EQ(screen.text.back(), '\n');
  screen.take();
  ::testing::internal::CaptureStderr();
  log::error("the console is gone");
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(screen.text, "");
}

TEST(Console, PrintsNothingWhenQuiet) {
  for (bool terminal : {true, false}) {
    Screen screen;
    ConsoleOptions options = screen.options(terminal);
    options.quiet = true;
    Console console(options);
    console.start({.total_steps = 100});
    screen.time += 100;
    console.tick(1, 64);
    console.write(record_at(1));
    console.finish();
    EXPECT_EQ(screen.text, "");
  }
}

TEST(Console, DrawsOnARealTerminalWithinItsWidth) {
  FileDescriptor screen(::posix_openpt(O_RDWR | O_NOCTTY));
  ASSERT_TRUE(screen && ::grantpt(screen.get()) == 0 && ::unlockpt(screen.get()) == 0);
  FileDescriptor terminal(::open(::ptsname(screen.get()), O_RDWR | O_NOCTTY));
  ASSERT_TRUE(terminal);
  winsize size{};
  size.ws_col = 50;
  ASSERT_EQ(::ioctl(terminal.get(), TIOCSWINSZ, &size), 0);
  ConsoleOptions options = console_on(terminal.get());
  EXPECT_TRUE(options.terminal);
  EXPECT_EQ(options.width(), 50);
  options.colour = false;
  Console console(options);
  console.start({.total_steps = 100});
  console.finish();
  std::array<char, 1024> bytes{};
  ssize_t got = ::read(screen.get(), bytes.data(), bytes.size());
  ASSERT_GT(got, 0);
  std::string drawn(bytes.data(), static_cast<size_t>(got));
  std::string bar = drawn.substr(1, drawn.find("\033[K") - 1);
  EXPECT_THAT(bar, StartsWith("  0%|"));
  EXPECT_LE(columns_of(bar), 49);
}

TEST(Console, DrawsNoBarIntoAPipe) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  FileDescriptor out(ends[0]);
  FileDescriptor in(ends[1]);
  ConsoleOptions options = console_on(in.get());
  EXPECT_FALSE(options.terminal);
  EXPECT_FALSE(options.colour);
  EXPECT_EQ(options.width(), 80);
}

TEST(Console, CountsSpeedFromTheStepItResumedAt) {
  Screen screen;
  Console console(screen.options(true));
  console.start({.total_steps = 1000, .first_step = 900});
  screen.time += 1;
  console.tick(910, 0);
  EXPECT_THAT(screen.text, HasSubstr("910/1000 [00:01<00:09, 10.00it/s]"));
}

}  // namespace
}  // namespace yoke::metrics
