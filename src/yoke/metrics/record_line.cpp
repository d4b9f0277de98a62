#include "yoke/metrics/record_line.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "yoke/base/text.h"
#include "yoke/base/units.h"
#include "yoke/metrics/progress_bar.h"

namespace yoke::metrics {
namespace {

struct Piece {
  int worth;  // the lowest is omitted first if the line is too long
  std::string text;
};

constexpr const char* kGap = "  ";

std::string fit(std::vector<Piece> pieces, int width) {
  while (true) {
    std::vector<std::string> texts;
    for (const Piece& piece : pieces) texts.push_back(piece.text);
    std::string line = join(texts, kGap);
    if (width <= 0 || static_cast<int>(line.size()) <= width || pieces.size() == 1) return line;
    pieces.erase(std::min_element(pieces.begin(), pieces.end(),
                                  [](const Piece& a, const Piece& b) { return a.worth < b.worth; }));
  }
}

std::string memory_text(int64_t bytes) {
  double mebibytes = static_cast<double>(bytes) / (1 << 20);
  return mebibytes < 100 ? fmt::format("{:.1f}MiB", mebibytes) : fmt::format("{:.1f}GiB", mebibytes / 1024);
}

std::string step_text(int64_t step, const LineStyle& style) {
  return style.total_steps > 0 ? fmt::format("step: {}/{}", step, style.total_steps)
                               : fmt::format("step: {}", step);
}

std::string speed_text(double per_second) {
  return per_second < 100 ? fmt::format("{:.3g}", per_second) : format_count(per_second);
}

void add_time_left(std::vector<Piece>& pieces, const LineStyle& style) {
  if (style.seconds_left >= 0) pieces.push_back({4, "left: " + clock_text(style.seconds_left)});
}

}  // namespace

std::string to_line(const Record& record, const LineStyle& style) {
  std::vector<Piece> pieces = {{9, step_text(record.step, style)},
                               {8, fmt::format("loss: {:.4f}", record.loss)}};
  if (record.eval_loss) pieces.push_back({6, fmt::format("eval_loss: {:.4f}", *record.eval_loss)});
  if (record.accuracy) pieces.push_back({7, fmt::format("accuracy: {:.2f}%", *record.accuracy * 100)});
  pieces.push_back({3, fmt::format("lr: {:.4g}", record.lr)});
  if (record.grad_norm) pieces.push_back({2, fmt::format("grad_norm: {:.3g}", *record.grad_norm)});
  if (record.loss_scale) pieces.push_back({0, fmt::format("loss_scale: {:g}", *record.loss_scale)});
  if (record.memory_bytes) pieces.push_back({1, "memory: " + memory_text(*record.memory_bytes)});
  if (style.tokens && record.tokens_per_s) {
    pieces.push_back({5, "tokens/s: " + speed_text(*record.tokens_per_s)});
  } else {
    pieces.push_back({5, "samples/s: " + speed_text(record.samples_per_s)});
  }
  add_time_left(pieces, style);
  return fit(std::move(pieces), style.width);
}

std::string to_line(int64_t step, double samples_per_s, const LineStyle& style) {
  std::vector<Piece> pieces = {{9, step_text(step, style)}, {5, "samples/s: " + speed_text(samples_per_s)}};
  add_time_left(pieces, style);
  return fit(std::move(pieces), style.width);
}

}  // namespace yoke::metrics
