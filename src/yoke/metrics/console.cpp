#include "yoke/metrics/console.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "yoke/base/clock.h"
#include "yoke/base/log.h"
#include "yoke/base/terminal.h"
#include "yoke/base/units.h"
#include "yoke/metrics/progress_bar.h"
#include "yoke/metrics/record_line.h"

namespace yoke::metrics {
namespace {

// Lines of a log file: wide enough for what matters.
constexpr int kLogWidth = 110;

constexpr double kRedrawSeconds = 0.1;
constexpr double kLineSeconds = 2;      // between records, without a terminal
constexpr double kSilenceSeconds = 30;  // after this a line even without a record
constexpr double kRateSeconds = 0.5;    // interval of speed measurements
constexpr double kRateSmoothing = 0.3;  // as tqdm

// The log calls a plain function; this is the active console.
std::mutex active_mutex;
Console* active = nullptr;

void clear_active() {
  std::lock_guard lock(active_mutex);
  if (active != nullptr) active->clear();
}

void activate(Console* console) {
  std::lock_guard lock(active_mutex);
  active = console;
  log::set_before_write(clear_active);
}

void deactivate(Console* console) {
  std::lock_guard lock(active_mutex);
  if (active == console) active = nullptr;
}

}  // namespace

ConsoleOptions console_on(int fd, bool quiet) {
  return {.quiet = quiet,
          .terminal = terminal::is_terminal(fd),
          .colour = terminal::use_colour(fd),
          .width = [fd] { return terminal::width(fd); },
          .clock = now_seconds,
          .out =
              [fd](std::string_view text) {
                // One write, so that lines stay whole. A closed stderr is not our problem.
                [[maybe_unused]] auto written = ::write(fd, text.data(), text.size());
              }};
}

Console::Console(ConsoleOptions options) : options_(std::move(options)) {}

Console::~Console() {
  deactivate(this);
  std::lock_guard lock(mutex_);
  end_bar();
}

void Console::start(const RunInfo& info) {
  if (options_.quiet) return;
  if (options_.terminal) activate(this);
  std::lock_guard lock(mutex_);
  info_ = info;
  step_ = rate_step_ = info.first_step;
  started_ = rate_time_ = line_time_ = options_.clock();
  if (options_.terminal) draw(started_);
}

void Console::tick(int64_t step, double samples_per_s) {
  if (options_.quiet) return;
  std::lock_guard lock(mutex_);
  double now = options_.clock();
  samples_per_s_ = samples_per_s;
  advance(step, now);
  if (options_.terminal) {
    if (now - draw_time_ >= kRedrawSeconds) draw(now);
  } else if (now - line_time_ >= kSilenceSeconds) {
    LineStyle style{.total_steps = info_.total_steps, .seconds_left = seconds_left()};
    print_line(to_line(step, samples_per_s, style), now);
  }
}

void Console::write(const Record& record) {
  if (options_.quiet) return;
  std::lock_guard lock(mutex_);
  double now = options_.clock();
  bool first = !last_.has_value();
  last_ = record;
  advance(std::max(step_, record.step), now);
  bool evaluated = record.accuracy || record.eval_loss;
  bool due = first || now - line_time_ >= kLineSeconds;
  last_shown_ = evaluated || (!options_.terminal && due);
  if (!last_shown_) return;
  LineStyle style{.width = options_.terminal ? options_.width() : kLogWidth,
                  .tokens = info_.tokens,
                  .total_steps = info_.total_steps,
                  .seconds_left = seconds_left()};
  print_line(to_line(record, style), now);
}

void Console::finish() {
  if (options_.quiet) return;
  deactivate(this);
  std::lock_guard lock(mutex_);
  double now = options_.clock();
  if (options_.terminal) {
    draw(now);
    end_bar();
  } else if (last_ && !last_shown_) {
    print_line(to_line(*last_, {.tokens = info_.tokens, .total_steps = info_.total_steps}), now);
  }
  last_shown_ = true;
}

void Console::clear() {
  std::lock_guard lock(mutex_);
  erase();
}

// The speed follows recent steps, so that a slow first step does not distort the estimate for long.
void Console::advance(int64_t step, double now) {
  step_ = step;
  double elapsed = now - rate_time_;
  if (elapsed <= 0 || step <= rate_step_ || (rate_ > 0 && elapsed < kRateSeconds)) return;
  double recent = static_cast<double>(step - rate_step_) / elapsed;
  rate_ = rate_ > 0 ? kRateSmoothing * recent + (1 - kRateSmoothing) * rate_ : recent;
  rate_step_ = step;
  rate_time_ = now;
}

double Console::seconds_left() const {
  if (info_.total_steps <= 0 || rate_ <= 0) return -1;
  return static_cast<double>(std::max<int64_t>(info_.total_steps - step_, 0)) / rate_;
}

std::string Console::note() const {
  std::string text;
  if (last_) text = fmt::format("loss {:.4g}", last_->loss);
  if (info_.tokens && last_ && last_->tokens_per_s) {
    text += fmt::format(", {} tokens/s", format_short(*last_->tokens_per_s));
  } else if (samples_per_s_ > 0 && std::isfinite(samples_per_s_)) {
    text += fmt::format("{}{} samples/s", text.empty() ? "" : ", ", format_short(samples_per_s_));
  }
  return text;
}

void Console::draw(double now) {
  Progress progress{.done = step_,
                    .total = info_.total_steps,
                    .elapsed = now - started_,
                    .per_second = rate_,
                    .note = note()};
  // The last column stays free: some terminals wrap as soon as it is used.
  std::string bar = progress_bar(progress, options_.width() - 1, options_.colour);
  options_.out("\r" + bar + "\033[K");
  draw_time_ = now;
  on_screen_ = true;
}

void Console::erase() {
  if (!on_screen_) return;
  options_.out("\r\033[K");
  on_screen_ = false;
}

void Console::print_line(const std::string& line, double now) {
  erase();
  options_.out(line + "\n");
  line_time_ = now;
  if (options_.terminal) draw(now);
}

void Console::end_bar() {
  if (!on_screen_) return;
  options_.out("\n");
  on_screen_ = false;
}

}  // namespace yoke::metrics
