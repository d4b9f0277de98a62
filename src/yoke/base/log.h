// One-line messages for people, on stderr. Results are never logged. Thread-safe.
#pragma once

#include <fmt/core.h>

#include <string>
#include <utility>

namespace yoke::log {

enum class Level { kDebug, kInfo, kWarning, kError, kSilent };

// Messages below `level` are dropped. `--quiet` sets kWarning.
void set_level(Level level);
Level level();

// Prefix of each message, e.g. "[rank 2] ". Empty by default.
void set_prefix(std::string prefix);

// Called before a line is written, so that a progress bar can clear itself; nullptr: none.
void set_before_write(void (*callback)());

void write(Level level, const std::string& text);

template <class... Args>
void debug(fmt::format_string<Args...> text, Args&&... args) {
  if (level() <= Level::kDebug) write(Level::kDebug, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> text, Args&&... args) {
  if (level() <= Level::kInfo) write(Level::kInfo, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void warn(fmt::format_string<Args...> text, Args&&... args) {
  if (level() <= Level::kWarning) write(Level::kWarning, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> text, Args&&... args) {
  if (level() <= Level::kError) write(Level::kError, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace yoke::log
