#include "yoke/base/error.h"

#include <cstring>

namespace yoke {

std::string describe_errno(int error) {
  return std::strerror(error);
}

namespace detail {

void check_failed(const char* file, int line, const char* condition, const std::string& text) {
  throw Error(
      ExitCode::kInternal,
      fmt::format("internal error: {} ({} is false, {}:{}). Please report it with the command you ran.", text,
                  condition, file, line));
}

}  // namespace detail
}  // namespace yoke
