#include "yoke/base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace yoke::terminal {

bool is_terminal(int fd) {
  return ::isatty(fd) == 1;
}

bool use_colour(int fd) {
  // NO_COLOR and TERM describe the terminal, not the run: the one exception to "the environment is
  // read in cluster/launch_env.cpp".
  const char* no_colour = std::getenv("NO_COLOR");
  if (no_colour != nullptr && *no_colour != '\0') return false;
  const char* term = std::getenv("TERM");
  if (term == nullptr || std::string_view(term) == "dumb") return false;
  return is_terminal(fd);
}

int width(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

}  // namespace yoke::terminal
