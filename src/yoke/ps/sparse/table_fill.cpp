// The part of Table that gives and gets rows while they change.
#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/ps/sparse/table.h"

namespace yoke::ps::sparse {

Table::Piece Table::piece(uint32_t first, size_t most) const {
  Piece piece;
  const size_t count = std::min(most, rows_.size() - first);
  for (size_t i = 0; i < count; ++i) piece.keys.push_back(rows_.key(first + static_cast<uint32_t>(i)));
  for (int array = 0; array < rows_.arrays() && count > 0; ++array) {
    const std::byte* data = rows_.at(array, first);
    piece.arrays.emplace_back(data, data + count * rows_.row_bytes());
  }
  if (penalised())
    piece.marks.assign(marks_.begin() + first, marks_.begin() + first + static_cast<ptrdiff_t>(count));
  return piece;
}

void Table::begin_filling(const PenaltyMark& mark) {
  if (!mark.is_sane())
    throw CommError("a copy of a table whose penalties are {} and {}", mark.fallen, mark.log_scale);
  filling_ = true;
  now_ = next_ = mark;
}

void Table::fill(const Piece& piece) {
  const bool marked = std::all_of(piece.marks.begin(), piece.marks.end(),
                                  [](const PenaltyMark& mark) { return mark.is_sane(); });
  if (!marked || piece.marks.size() != (penalised() ? piece.keys.size() : 0))
    throw CommError("a copy of a table with {} rows and {} marks", piece.keys.size(), piece.marks.size());
  const size_t before = rows_.size();
  std::vector<uint32_t> rows(piece.keys.size());
  for (Key key : piece.keys)
    if (key < shape_.begin || key >= shape_.end)
      throw CommError("a copy of a table with key {}: {} to {} are accepted", key, shape_.begin, shape_.end);
  rows_.find_or_add(piece.keys, rows.data());
  if (rows_.size() != before + piece.keys.size()) throw CommError("a copy of a table with a key twice");
  for (size_t array = 0; array < piece.arrays.size(); ++array)
    for (size_t i = 0; i < rows.size(); ++i)
      std::copy_n(piece.arrays[array].data() + i * rows_.row_bytes(), rows_.row_bytes(),
                  rows_.at(static_cast<int>(array), rows[i]));
  for (size_t i = 0; i < piece.marks.size(); ++i) mark_row(rows[i], piece.marks[i]);
}

std::vector<size_t> Table::present(std::span<const Key> keys) const {
  std::vector<uint32_t> rows(keys.size());
  rows_.find(keys, rows.data());
  std::vector<size_t> places;
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i] != KeyTable::kAbsent) places.push_back(i);
  return places;
}

void Table::apply_to_present(const RuleStep& step, std::span<const Key> keys, const std::byte* gradient) {
  std::vector<Key> here;
  std::vector<std::byte> values;
  const size_t each = shape_.pushed_bytes();
  for (size_t i : present(keys)) {
    here.push_back(keys[i]);
    values.insert(values.end(), gradient + i * each, gradient + (i + 1) * each);
  }
  filling_ = false;
  apply(step, here, values.data());
  filling_ = true;
}

void Table::assign_to_present(int64_t array, std::span<const Key> keys, const std::byte* values) {
  for (size_t i : present(keys)) {
    uint32_t row = 0;
    rows_.find(keys.subspan(i, 1), &row);
    std::copy_n(values + i * rows_.row_bytes(), rows_.row_bytes(), rows_.at(static_cast<int>(array), row));
    if (array == 0 && penalised()) mark_row(row, now_);
  }
}

}  // namespace yoke::ps::sparse
