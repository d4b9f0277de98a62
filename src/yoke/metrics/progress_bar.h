// A progress bar in the style of tqdm, as text; drawing is up to the console.
#pragma once

#include <cstdint>
#include <string>

namespace yoke::metrics {

struct Progress {
  int64_t done = 0;
  int64_t total = 0;      // 0: unknown
  double elapsed = 0;     // seconds
  double per_second = 0;  // 0: unknown yet
  std::string note{};     // "loss 0.31", shown if there is room
};

// " 37%|███▋      | 37/100 [00:12<00:21, 2.97it/s] loss 0.31", in at most `columns` columns.
std::string progress_bar(const Progress& progress, int columns, bool colour);

// "00:12", "1:02:03"; "?" for non-finite or negative values.
std::string clock_text(double seconds);

}  // namespace yoke::metrics
