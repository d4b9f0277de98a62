// The final report of a failed job: a box for people, a file for torchrun.
#pragma once

#include <deque>
#include <string>

#include "yoke/cluster/failure.h"

namespace yoke::cluster {

struct BoxContent {
  FailureReport failure;
  int exit_code = 1;
  double seconds = 0;
  int restarts = 0;
  std::deque<std::string> last_lines;  // of the culprit's stderr
  std::string log_folder;              // folder of its logs; empty: not kept
};

// 80 columns. `utf8` selects box-drawing characters; otherwise plain ASCII.
std::string draw_box(const BoxContent& content, bool utf8);

// Whether stderr is a terminal that supports UTF-8.
bool stderr_shows_utf8();

// torchrun's JSON format, for TORCHELASTIC_ERROR_FILE.
std::string error_file_text(const FailureReport& failure, double wall_seconds);

}  // namespace yoke::cluster
