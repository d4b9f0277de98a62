// Tables for terminals.
#pragma once

#include <string>
#include <vector>

namespace yoke::report {

// Columns are as wide as their widest cell; numeric columns are right-aligned. Plain text without colours.
class Table {
 public:
  explicit Table(std::vector<std::string> headers);

  // Requires as many cells as headers.
  void add(std::vector<std::string> cells);

  // One line per row, each ended by a newline, without trailing blanks. If the table is wider than `width`,
  // the widest columns are truncated with an ellipsis; 0: no limit.
  std::string to_text(int width = 80) const;

 private:
  std::vector<std::string> headers_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace yoke::report
