// Capabilities of the terminal behind a file descriptor.
#pragma once

namespace yoke::terminal {

bool is_terminal(int fd);

// True on a terminal unless NO_COLOR is set or TERM is "dumb".
bool use_colour(int fd);

// Columns of the terminal, 80 if there is none.
int width(int fd);

}  // namespace yoke::terminal
