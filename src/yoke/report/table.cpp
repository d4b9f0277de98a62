#include "yoke/report/table.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "yoke/base/error.h"

namespace yoke::report {
namespace {

constexpr size_t kGap = 2;
constexpr size_t kNarrowest = 6;

bool starts_letter(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
}

// Columns that a UTF-8 text takes; wide letters count as one.
size_t width_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), starts_letter));
}

std::string cut(std::string_view text, size_t width) {
  if (width_of(text) <= width) return std::string(text);
  size_t letters = 0;
  size_t end = 0;
  for (; end < text.size(); ++end) {
    if (starts_letter(text[end]) && letters++ == width - 1) break;
  }
  return std::string(text.substr(0, end)) + "…";
}

bool is_number(std::string_view cell) {
  if (cell.empty() || cell == "-" || cell == "–") return true;
  size_t digit = cell.find_first_of("0123456789");
  return digit != std::string_view::npos && digit <= 1 && (digit == 0 || cell[0] == '-' || cell[0] == '+');
}

std::string pad(const std::string& cell, size_t width, bool right) {
  std::string blanks(width - width_of(cell), ' ');
  return right ? blanks + cell : cell + blanks;
}

void shrink(std::vector<size_t>& widths, size_t limit) {
  size_t total = kGap * (widths.size() - 1);
  for (size_t width : widths) total += width;
  while (total > limit) {
    auto widest = std::max_element(widths.begin(), widths.end());
    if (*widest <= kNarrowest) return;
    --*widest;
    --total;
  }
}

std::string to_row(const std::vector<std::string>& cells, const std::vector<size_t>& widths,
                   const std::vector<bool>& right) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) line += std::string(kGap, ' ');
    line += pad(cut(cells[i], widths[i]), widths[i], right[i]);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

Table::Table(std::vector<std::string> headers) : headers_(std::move(headers)) {
  YOKE_CHECK(!headers_.empty(), "a table without columns");
}

void Table::add(std::vector<std::string> cells) {
  YOKE_CHECK(cells.size() == headers_.size(), "a row of {} cells in a table of {} columns", cells.size(),
             headers_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::to_text(int width) const {
  std::vector<size_t> widths;
  std::vector<bool> right;
  std::vector<std::string> rule;
  for (size_t i = 0; i < headers_.size(); ++i) {
    size_t widest = width_of(headers_[i]);
    bool numbers = !rows_.empty();
    for (const auto& row : rows_) {
      widest = std::max(widest, width_of(row[i]));
      numbers = numbers && is_number(row[i]);
    }
    widths.push_back(widest);
    right.push_back(numbers);
  }
  if (width > 0) shrink(widths, static_cast<size_t>(width));
  for (size_t column : widths) rule.emplace_back(column, '-');
  std::string text = to_row(headers_, widths, right) + to_row(rule, widths, right);
  for (const auto& row : rows_) text += to_row(row, widths, right);
  return text;
}

}  // namespace yoke::report
