// Tables for terminals.
#pragma once

#include <string>
#include <vector>

namespace yoke::report {

// Columns are as wide as their widest cell; those that hold only numbers are aligned right. Plain text, no
// colours.
class Table {
 public:
  explicit Table(std::vector<std::string> headers);

  // Requires as many cells as there are headers.
  void add(std::vector<std::string> cells);

  // One line a row, each ended by a newline, no blanks at line ends. Where the table is wider than `width`,
  // the widest columns are cut with an ellipsis; 0 cuts nothing.
  std::string to_text(int width = 80) const;

 private:
  std::vector<std::string> headers_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace yoke::report
