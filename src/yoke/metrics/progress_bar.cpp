#include "yoke/metrics/progress_bar.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace yoke::metrics {
namespace {

constexpr int kWidestBar = 32;
constexpr int kNarrowestBar = 4;

std::string rate_text(double per_second) {
  if (per_second <= 0 || !std::isfinite(per_second)) return "?it/s";
  return per_second < 1 ? fmt::format("{:.2f}s/it", 1 / per_second) : fmt::format("{:.2f}it/s", per_second);
}

// Eighths of a cell make the bar move smoothly.
std::string cells(double share, int width) {
  constexpr std::array kEighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  auto eighths = static_cast<int>(share * width * 8);
  std::string text;
  for (int i = 0; i < eighths / 8; ++i) text += "█";
  text += kEighths[static_cast<size_t>(eighths % 8)];
  int used = eighths / 8 + (eighths % 8 != 0 ? 1 : 0);
  return text + std::string(static_cast<size_t>(width - used), ' ');
}

std::string without_total(const Progress& p) {
  return fmt::format("{}it [{}, {}]", p.done, clock_text(p.elapsed), rate_text(p.per_second));
}

std::string fit_note(const std::string& note, int columns) {
  return note.empty() || static_cast<int>(note.size()) + 1 > columns ? "" : " " + note;
}

}  // namespace

std::string clock_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) return "?";
  auto whole = static_cast<int64_t>(seconds);
  if (whole < 3600) return fmt::format("{:02}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string progress_bar(const Progress& p, int columns, bool colour) {
  if (p.total <= 0) {
    std::string head = without_total(p);
    head.resize(std::min(head.size(), static_cast<size_t>(std::max(columns, 0))));
    return head + fit_note(p.note, columns - static_cast<int>(head.size()));
  }
  double share = std::clamp(static_cast<double>(p.done) / static_cast<double>(p.total), 0.0, 1.0);
  double left = static_cast<double>(p.total - std::min(p.done, p.total)) / p.per_second;
  std::string head = fmt::format("{:3}%", static_cast<int>(share * 100));
  std::string tail = fmt::format(" {}/{} [{}<{}, {}]", p.done, p.total, clock_text(p.elapsed),
                                 clock_text(left), rate_text(p.per_second));
  int room = columns - static_cast<int>(head.size() + tail.size()) - 2;
  // The note is more important than a wide bar, but not more than any bar.
  std::string note = fit_note(p.note, room - 10);
  int bar = std::min(room - static_cast<int>(note.size()), kWidestBar);
  if (bar < kNarrowestBar) {
    std::string plain = head + tail;
    return plain.substr(0, static_cast<size_t>(std::max(columns, 0)));
  }
  std::string filled = cells(share, bar);
  if (colour) filled = "\033[36m" + filled + "\033[0m";
  return head + "|" + filled + "|" + tail + note;
}

}  // namespace yoke::metrics
