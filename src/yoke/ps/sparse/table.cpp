// Rules work on rows that lie one after the other. Keys that come together were mostly created together and
// lie so already; other rows of a block are gathered, updated and scattered. Rows with penalties that are due
// pay them first.
#include "yoke/ps/sparse/table.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

namespace yoke::ps::sparse {
namespace {

constexpr size_t kBlock = 512;  // rows; with their arrays they fit into the first-level cache

// Of a block: numbers of rows, remembered with their list or for now.
class BlockRows {
 public:
  // `known`: of the whole list, whose block begins at `at`.
  BlockRows(std::vector<uint32_t>* known, size_t keys, size_t at, size_t count) : count_(count) {
    if (known == nullptr) return;
    if (known->empty()) known->resize(keys, KeyTable::kAbsent);
    rows_ = known->data() + at;
    found_ = std::find(rows_, rows_ + count, KeyTable::kAbsent) == rows_ + count;
  }
  BlockRows(const BlockRows&) = delete;
  BlockRows& operator=(const BlockRows&) = delete;
  bool found() const { return found_; }  // all of them, before
  uint32_t* data() { return rows_; }
  uint32_t operator[](size_t i) const { return rows_[i]; }
  size_t count() const { return count_; }
  bool is_run() const {
    for (size_t i = 0; i < count_; ++i)
      if (rows_[i] != rows_[0] + i || rows_[i] == KeyTable::kAbsent) return false;
    return true;
  }
  void set_run(uint32_t first) { std::iota(rows_, rows_ + count_, first); }

 private:
  std::array<uint32_t, kBlock> own_;
  uint32_t* rows_ = own_.data();
  size_t count_;
  bool found_ = false;
};

// With the size of a row known to the compiler where that matters.
template <class Copy>
void for_row_bytes(size_t bytes, Copy&& copy) {
  if (bytes == 4) return copy(std::integral_constant<size_t, 4>());
  if (bytes == 8) return copy(std::integral_constant<size_t, 8>());
  copy(bytes);
}

void gather(const KeyTable& table, int array, const BlockRows& rows, std::byte* into) {
  for_row_bytes(table.row_bytes(), [&](auto bytes) {
    for (size_t i = 0; i < rows.count(); ++i) {
      if (rows[i] == KeyTable::kAbsent)
        std::memset(into + i * bytes, 0, bytes);
      else
        std::memcpy(into + i * bytes, table.at(array, rows[i]), bytes);
    }
  });
}

void scatter(KeyTable& table, int array, const BlockRows& rows, const std::byte* from) {
  for_row_bytes(table.row_bytes(), [&](auto bytes) {
    for (size_t i = 0; i < rows.count(); ++i) std::memcpy(table.at(array, rows[i]), from + i * bytes, bytes);
  });
}

void find(const KeyTable& table, std::span<const Key> keys, BlockRows& rows) {
  if (std::optional<uint32_t> run = table.find_run(keys))
    rows.set_run(*run);
  else
    table.find(keys, rows.data());
}

void find_or_add(KeyTable& table, std::span<const Key> keys, BlockRows& rows) {
  if (std::optional<uint32_t> run = table.find_run(keys))
    rows.set_run(*run);
  else
    table.find_or_add(keys, rows.data());
}

}  // namespace

Table::Table(TableShape shape, std::shared_ptr<const Rule> rule)
    : shape_(shape),
      rule_(std::move(rule)),
      penalty_(rule_->penalty()),
      rows_(shape.type, shape.width, 1 + rule_->state_arrays()) {
  shape_.state_arrays = rule_->state_arrays();
  shape_.pushed = rule_->pushed(shape_.width);
}

void Table::apply(const RuleStep& step, std::span<const Key> keys, const std::byte* gradient,
                  std::vector<uint32_t>* known) {
  if (filling_) return apply_to_present(step, keys, gradient);
  const size_t bytes = rows_.row_bytes();
  const size_t pushed = shape_.pushed_bytes();
  const int arrays = rows_.arrays();
  scratch_.resize(static_cast<size_t>(arrays) * kBlock * bytes);
  for (size_t at = 0; at < keys.size(); at += kBlock) {
    RowBlock block;
    block.type = shape_.type;
    block.width = shape_.width;
    block.keys = keys.subspan(at, std::min(kBlock, keys.size() - at));
    block.gradient = gradient + at * pushed;
    BlockRows rows(known, keys.size(), at, block.keys.size());
    if (!rows.found()) find_or_add(rows_, block.keys, rows);
    const bool run = rows.is_run();
    for (int array = 0; array < arrays; ++array) {
      std::byte* own =
          run ? rows_.at(array, rows[0]) : scratch_.data() + static_cast<size_t>(array) * kBlock * bytes;
      if (!run) gather(rows_, array, rows, own);
      (array == 0 ? block.values : block.state[static_cast<size_t>(array) - 1]) = own;
    }
    for (size_t i = 0; i < rows.count() && penalised(); ++i) {
      settle_row(static_cast<std::byte*>(block.values) + i * bytes, rows[i]);
      mark_row(rows[i], next_);
    }
    rule_->apply(step, block);
    for (int array = 0; array < arrays && !run; ++array)
      scatter(rows_, array, rows, scratch_.data() + static_cast<size_t>(array) * kBlock * bytes);
  }
}

void Table::update(const RuleStep& step, std::span<const Key> keys, const std::byte* gradient) {
  next_ = now_.after(penalty_, step.lr);
  apply(step, keys, gradient);
  now_ = next_;
}

// Rows that are not marked yet are new.
void Table::settle_row(std::byte* values, uint32_t row) const {
  if (row >= marks_.size()) return;
  if (shape_.type == DataType::kFloat32)
    settle(reinterpret_cast<float*>(values), shape_.width, marks_[row], now_);
  else
    settle(reinterpret_cast<double*>(values), shape_.width, marks_[row], now_);
}

void Table::mark_row(uint32_t row, const PenaltyMark& mark) {
  if (row >= marks_.size()) marks_.resize(rows_.size(), now_);
  marks_[row] = mark;
}

void Table::take_snapshot() {
  snapshot_ = rows_;
  for (uint32_t row = 0; row < marks_.size(); ++row) settle_row(snapshot_->at(0, row), row);
}

void Table::read(std::span<const Key> keys, std::byte* into, std::vector<uint32_t>* known) const {
  const size_t bytes = rows_.row_bytes();
  for (size_t at = 0; at < keys.size(); at += kBlock) {
    const std::span<const Key> block = keys.subspan(at, std::min(kBlock, keys.size() - at));
    BlockRows rows(known, keys.size(), at, block.size());
    if (!rows.found()) find(rows_, block, rows);
    if (rows.is_run())
      std::memcpy(into + at * bytes, rows_.at(0, rows[0]), block.size() * bytes);
    else
      gather(rows_, 0, rows, into + at * bytes);
    for (size_t i = 0; i < rows.count() && penalised(); ++i)
      if (rows[i] != KeyTable::kAbsent) settle_row(into + (at + i) * bytes, rows[i]);
  }
}

void Table::assign(int64_t array, std::span<const Key> keys, const std::byte* values) {
  if (filling_) return assign_to_present(array, keys, values);
  for (size_t at = 0; at < keys.size(); at += kBlock) {
    const std::span<const Key> block = keys.subspan(at, std::min(kBlock, keys.size() - at));
    BlockRows rows(nullptr, keys.size(), at, block.size());
    rows_.find_or_add(block, rows.data());
    scatter(rows_, static_cast<int>(array), rows, values + at * rows_.row_bytes());
    for (size_t i = 0; i < rows.count() && array == 0 && penalised(); ++i) mark_row(rows[i], now_);
  }
}

FetchTableReply Table::read_range(const FetchTableHead& head, std::vector<std::byte>& payload) {
  KeyTable& rows = (head.flags & kFromSnapshot) != 0 ? *snapshot_ : rows_;
  const std::span<const uint32_t> order = rows.in_order();
  auto before = [&](uint32_t row, Key key) { return rows.key(row) < key; };
  auto first = std::lower_bound(order.begin(), order.end(), head.begin, before);
  auto last = std::lower_bound(first, order.end(), head.end, before);
  FetchTableReply reply;
  reply.keys = std::min<int64_t>(head.most, last - first);
  reply.more = last - first > reply.keys ? 1 : 0;
  const auto count = static_cast<size_t>(reply.keys);
  payload.resize(count * (sizeof(Key) + rows.row_bytes()));
  std::byte* values = payload.data() + count * sizeof(Key);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t row = first[static_cast<ptrdiff_t>(i)];
    const Key key = rows.key(row);
    std::memcpy(payload.data() + i * sizeof(Key), &key, sizeof(Key));
    std::memcpy(values + i * rows.row_bytes(), rows.at(static_cast<int>(head.array), row), rows.row_bytes());
    if (head.array == 0 && &rows == &rows_) settle_row(values + i * rows.row_bytes(), row);
  }
  return reply;
}

}  // namespace yoke::ps::sparse
