// Progress for people: a bar on a terminal, a line now and then elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "yoke/metrics/sink.h"

namespace yoke::metrics {

// Where it writes and what that can show. Tests give functions of their own.
struct ConsoleOptions {
  bool quiet = false;     // print nothing
  bool terminal = false;  // carriage returns work
  bool colour = false;
  std::function<int()> width{};  // columns, asked before each drawing: windows change
  std::function<double()> clock{};
  std::function<void(std::string_view)> out{};
};

// Options that suit a file descriptor.
ConsoleOptions console_on(int fd, bool quiet = false);

// On a terminal: a bar, redrawn at most ten times a second, that makes way for log lines; evaluations leave a
// line. Elsewhere: a line for the first record, the last, evaluations, and in between one every few seconds.
// While it lives it is the one that log lines clear; of two, the one that started last.
class Console : public Sink {
 public:
  explicit Console(ConsoleOptions options);
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  ~Console() override;

  void start(const RunInfo& info) override;
  void tick(int64_t step, double samples_per_s) override;
  void write(const Record& record) override;
  // Draws the last state and ends the line.
  void finish() override;

  // Takes the bar off the screen; the next drawing puts it back. From any thread.
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
  std::mutex mutex_;  // guards what follows against clear()
  RunInfo info_;
  int64_t step_ = 0;
  double samples_per_s_ = 0;
  std::optional<Record> last_;  // newest record
  bool last_shown_ = false;
  double started_ = 0;
  double rate_ = 0;  // steps a second, smoothed
  int64_t rate_step_ = 0;
  double rate_time_ = 0;
  double line_time_ = 0;
  double draw_time_ = 0;
  bool on_screen_ = false;
};

}  // namespace yoke::metrics
