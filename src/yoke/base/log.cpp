#include "yoke/base/log.h"

#include <unistd.h>

#include <atomic>
#include <mutex>

#include "yoke/base/terminal.h"

namespace yoke::log {
namespace {

std::atomic<Level> current_level{Level::kInfo};
std::atomic<void (*)()> before_write{nullptr};
std::mutex mutex;
std::string prefix;

const char* label(Level level, bool colour) {
  switch (level) {
    case Level::kDebug:
      return "debug: ";
    case Level::kWarning:
      return colour ? "\033[33mwarning:\033[0m " : "warning: ";
    case Level::kError:
      return colour ? "\033[31merror:\033[0m " : "error: ";
    default:
      return "";
  }
}

}  // namespace

void set_level(Level level) {
  current_level = level;
}
Level level() {
  return current_level;
}

void set_prefix(std::string text) {
  std::lock_guard lock(mutex);
  prefix = std::move(text);
}

void set_before_write(void (*callback)()) {
  before_write = callback;
}

void write(Level level, const std::string& text) {
  std::lock_guard lock(mutex);
  if (auto* callback = before_write.load()) callback();
  std::string line = prefix + label(level, terminal::use_colour(STDERR_FILENO)) + text + "\n";
  // One write per line keeps lines of several ranks whole. A closed stderr is not our problem.
  [[maybe_unused]] auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace yoke::log
