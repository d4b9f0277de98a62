#include "yoke/cluster/launcher/box.h"

#include <fmt/core.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <algorithm>

#include "yoke/base/terminal.h"
#include "yoke/cluster/launch_env.h"

namespace yoke::cluster {
namespace {

constexpr size_t kWidth = 80;
constexpr size_t kInner = kWidth - 4;  // between "| " and " |"

bool continues_letter(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

size_t columns(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !continues_letter(c); }));
}

// Removes control characters, which could move the cursor or break the frame.
std::string printable(const std::string& text, bool utf8) {
  std::string result;
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    if (c == '\t') {
      result += ' ';
    } else if (byte < 32 || byte == 127) {
      continue;
    } else if (byte >= 128 && !utf8) {
      if (!continues_letter(c)) result += '?';
    } else {
      result += c;
    }
  }
  return result;
}

// Wraps at blanks, if possible, to at most `width` columns.
std::vector<std::string> wrap(std::string text, size_t width) {
  std::vector<std::string> lines;
  while (columns(text) > width) {
    size_t cut = 0;
    size_t blank = std::string::npos;
    for (size_t column = 0; cut < text.size(); ++cut) {
      if (continues_letter(text[cut])) continue;
      if (column++ == width) break;
      if (text[cut] == ' ' && column > width / 2) blank = cut;
    }
    size_t end = blank == std::string::npos ? cut : blank;
    lines.push_back(text.substr(0, end));
    text.erase(0, blank == std::string::npos ? end : end + 1);
  }
  lines.push_back(text);
  return lines;
}

class Frame {
 public:
  explicit Frame(bool utf8) : utf8_(utf8) {}

  void rule(const std::string& title, bool top) {
    const char* dash = utf8_ ? "─" : "-";
    text_ += utf8_ ? (top ? "┌─" : "└─") : "+-";
    text_ += title;
    for (size_t i = columns(title); i < kWidth - 3; ++i) text_ += dash;
    text_ += utf8_ ? (top ? "┐\n" : "┘\n") : "+\n";
  }

  void line(const std::string& text, size_t indent = 0) {
    const char* side = utf8_ ? "│" : "|";
    for (const std::string& piece : wrap(printable(text, utf8_), kInner - indent)) {
      size_t pad = kInner - indent - columns(piece);
      text_ += fmt::format("{} {:{}}{}{:{}} {}\n", side, "", indent, piece, "", pad, side);
    }
  }

  void field(const char* name, const std::string& value) {
    if (value.empty()) return;
    constexpr size_t kName = 12;
    const char* side = utf8_ ? "│" : "|";
    std::string label = name;
    for (const std::string& piece : wrap(printable(value, utf8_), kInner - kName)) {
      size_t pad = kInner - kName - columns(piece);
      text_ += fmt::format("{} {:<{}}{}{:{}} {}\n", side, label, kName, piece, "", pad, side);
      label.clear();
    }
  }

  std::string take() { return std::move(text_); }

 private:
  bool utf8_;
  std::string text_;
};

std::string where(const FailureReport& failure) {
  if (failure.rank < 0) return failure.host;
  std::string text = fmt::format("{} on {}", rank_name(failure.rank, failure.role),
                                 failure.host.empty() ? "another machine" : failure.host);
  return failure.pid > 0 ? text + fmt::format(", pid {}", failure.pid) : text;
}

// The event without its subject, which the line above names.
std::string happened(const FailureReport& failure) {
  std::string who =
      fmt::format("{} on {} (pid {}) ", rank_name(failure.rank, failure.role), failure.host, failure.pid);
  return failure.what.rfind(who, 0) == 0 ? failure.what.substr(who.size()) : failure.what;
}

}  // namespace

std::string draw_box(const BoxContent& content, bool utf8) {
  const FailureReport& failure = content.failure;
  Frame frame(utf8);
  frame.rule(" the job failed ", true);
  frame.field("root cause", where(failure));
  if (failure.step >= 0) frame.field("step", std::to_string(failure.step));
  frame.field("what", happened(failure));
  frame.field("what to do", failure.next);
  std::string end = fmt::format("exit code {}, after {:.1f} s", content.exit_code, content.seconds);
  if (content.restarts > 0)
    end += fmt::format(" and {} restart{}", content.restarts, content.restarts == 1 ? "" : "s");
  frame.field("end", end);
  frame.field("its output", content.log_folder);
  if (!content.last_lines.empty()) frame.line("last lines of its stderr:");
  for (const std::string& line : content.last_lines) frame.line(line, 2);
  frame.rule("", false);
  return frame.take();
}

bool stderr_shows_utf8() {
  if (!terminal::is_terminal(STDERR_FILENO)) return false;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::optional<std::string> value = environment_variable(name);
    if (!value) continue;
    std::transform(value->begin(), value->end(), value->begin(),
                   [](unsigned char c) { return std::toupper(c); });
    return value->find("UTF-8") != std::string::npos || value->find("UTF8") != std::string::npos;
  }
  return false;
}

std::string error_file_text(const FailureReport& failure, double wall_seconds) {
  std::string message = failure.what + (failure.next.empty() ? "" : ". " + failure.next);
  nlohmann::json document = {{"message",
                              {{"message", message},
                               {"errorCode", 1},
                               {"extraInfo",
                                {{"timestamp", fmt::format("{:.0f}", wall_seconds)},
                                 {"rank", failure.rank},
                                 {"host", failure.host}}}}}};
  return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace yoke::cluster
