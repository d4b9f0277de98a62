// Errors by who can fix them, and their exit codes.
//
// ConfigError: the user can fix it (option, file, input). CommError: a peer or a link failed.
// CheckpointError: saved state cannot be used. YOKE_CHECK: a bug in Yoke. Every text says what happened,
// where, and what to do next, in one or two lines.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace yoke {

// What `yoke` returns to the shell (docs/cli.md).
enum class ExitCode : int {
  kOk = 0,
  kInternal = 1,
  kUsage = 2,
  kPeerFailed = 3,
  kRendezvous = 4,
  kCheckpoint = 5,
  kVerification = 6,
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& text) : std::runtime_error(text), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// Names the key or file, the value, what is accepted, and a hint. Exit code 2.
class ConfigError : public Error {
 public:
  template <class... Args>
  explicit ConfigError(fmt::format_string<Args...> text, Args&&... args)
      : Error(ExitCode::kUsage, fmt::format(text, std::forward<Args>(args)...)) {}
};

// Names operation, group, rank and elapsed time. Exit code 3.
class CommError : public Error {
 public:
  template <class... Args>
  explicit CommError(fmt::format_string<Args...> text, Args&&... args)
      : Error(ExitCode::kPeerFailed, fmt::format(text, std::forward<Args>(args)...)) {}
};

// Names the checkpoint, what is wrong with it, and what can be used instead. Exit code 5.
class CheckpointError : public Error {
 public:
  template <class... Args>
  explicit CheckpointError(fmt::format_string<Args...> text, Args&&... args)
      : Error(ExitCode::kCheckpoint, fmt::format(text, std::forward<Args>(args)...)) {}
};

// "could not open: No such file or directory" for the current errno.
std::string describe_errno(int error);

namespace detail {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& text);
}

}  // namespace yoke

// Our own invariants. The text is a fmt format: YOKE_CHECK(begin <= end, "empty stage {}", stage).
#define YOKE_CHECK(condition, ...)                                                              \
  do {                                                                                          \
    if (!(condition)) [[unlikely]]                                                              \
      ::yoke::detail::check_failed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
  } while (false)
