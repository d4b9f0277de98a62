// Progress for people: a bar on a terminal, periodic lines elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "yoke/metrics/sink.h"

namespace yoke::metrics {

// Destination and its capabilities. Tests pass their own functions.
struct ConsoleOptions {
  bool quiet = false;     // print nothing
  bool terminal = false;  // supports carriage returns
  bool colour = false;
  std::function<int()> width{};  // columns, queried before each drawing because windows change
  std::function<double()> clock{};
  std::function<void(std::string_view)> out{};
};

// Options for a file descriptor.
ConsoleOptions console_on(int fd, bool quiet = false);

// On a terminal: a bar, redrawn at most ten times per second, that makes room for log lines; evaluations
// leave a line. Elsewhere: a line for the first record, the last, evaluations, and every few seconds in
// between. While it exists, log lines clear it; of two, the one that started last.
class Console : public Sink {
 public:
  explicit Console(ConsoleOptions options);
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  ~Console() override;

  void start(const RunInfo& info) override;
  void tick(int64_t step, double samples_per_s) override;
  void write(const Record& record) override;
  // Draws the final state and ends the line.
  void finish() override;

  // Removes the bar from the screen; the next drawing restores it. Any thread.
  void clear();

 private:
  void advance(int64_t step, double now);
  void draw(double now);
  void erase();
  void print_line(const std::string& line, double now);
  void end_bar();
  double seconds_left() const;
  std::string note() const;

  ConsoleOptions options_;
  std::mutex mutex_;  // guards the members below against clear()
  RunInfo info_;
  int64_t step_ = 0;
  double samples_per_s_ = 0;
  std::optional<Record> last_;  // newest record
  bool last_shown_ = false;
  double started_ = 0;
  double rate_ = 0;  // steps per second, smoothed
  int64_t rate_step_ = 0;
  double rate_time_ = 0;
  double line_time_ = 0;
  double draw_time_ = 0;
  bool on_screen_ = false;
};

}  // namespace yoke::metrics
