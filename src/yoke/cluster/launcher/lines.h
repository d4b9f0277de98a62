// Bytes of a rank's output, as whole lines.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>

namespace yoke::cluster {

class Lines {
 public:
  static constexpr size_t kMaxLine = size_t{1} << 20;  // longer ones are cut into pieces of this size
  static constexpr size_t kTail = 8;                   // how many lines are remembered
  static constexpr size_t kTailLine = 400;             // how much of each

  explicit Lines(std::string prefix) : prefix_(std::move(prefix)) {}

  // Whether a line is shown; empty: all are.
  using Filter = std::function<bool(const std::string& line)>;

  // What can be shown now: complete lines, each behind the prefix and with its newline.
  std::string feed(std::string_view bytes, const Filter& shows = {});
  // What is left of an unfinished last line.
  std::string finish(const Filter& shows = {});

  const std::deque<std::string>& tail() const { return tail_; }

 private:
  void close_line(std::string& out, const Filter& shows);

  std::string prefix_;
  std::string partial_;
  std::deque<std::string> tail_;
};

}  // namespace yoke::cluster
