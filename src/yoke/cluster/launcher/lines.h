// Splits the output of a rank into lines.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>

namespace yoke::cluster {

class Lines {
 public:
  static constexpr size_t kMaxLine = size_t{1} << 20;  // longer lines are split
  static constexpr size_t kTail = 8;                   // number of lines remembered
  static constexpr size_t kTailLine = 400;             // characters remembered of each

  explicit Lines(std::string prefix) : prefix_(std::move(prefix)) {}

  // Whether a line is shown; empty: all are.
  using Filter = std::function<bool(const std::string& line)>;

  // Returns what can be shown now: complete lines with prefix and newline.
  std::string feed(std::string_view bytes, const Filter& shows = {});
  // Returns the unfinished last line, if any.
  std::string finish(const Filter& shows = {});

  const std::deque<std::string>& tail() const { return tail_; }

 private:
  void close_line(std::string& out, const Filter& shows);

  std::string prefix_;
  std::string partial_;
  std::deque<std::string> tail_;
};

}  // namespace yoke::cluster
