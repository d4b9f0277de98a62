// One sparse table on its server: rows and the rule that updates them. Not thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "yoke/ps/sparse/key_table.h"
#include "yoke/ps/sparse/rules.h"
#include "yoke/ps/sparse/wire.h"

namespace yoke::ps::sparse {

class Table {
 public:
  // `shape`: the keys that this server holds; state arrays and values of a push are those of the rule.
  Table(TableShape shape, std::shared_ptr<const Rule> rule);

  const TableShape& shape() const { return shape_; }
  size_t rows() const { return rows_.size(); }
  size_t bytes_held() const {
    return rows_.bytes_held() + marks_.capacity() * sizeof(PenaltyMark) +
           (snapshot_ ? snapshot_->bytes_held() : 0);
  }

  // Keys were checked by check_keys(). `gradient` and `into` have a row for each. `rows` remembers where the
  // keys of this list are, so that they are looked up once; nullptr: nothing is remembered.
  void apply(const RuleStep& step, std::span<const Key> keys, const std::byte* gradient,
             std::vector<uint32_t>* rows = nullptr);
  // An update of a run: the same, and the penalties of the rule are taken off the rows that it does not name,
  // when they are read or updated next.
  void update(const RuleStep& step, std::span<const Key> keys, const std::byte* gradient);
  // Zeros for absent keys.
  void read(std::span<const Key> keys, std::byte* into, std::vector<uint32_t>* rows = nullptr) const;
  void assign(int64_t array, std::span<const Key> keys, const std::byte* values);

  // Another server's rows arrive piece by piece. Until filled(), changes concern only the rows that are here:
  // what comes later includes them.
  struct Piece {
    std::vector<Key> keys;                         // in the order of their creation
    std::vector<PenaltyMark> marks{};              // up to which values are current; empty: no penalties
    std::vector<std::vector<std::byte>> arrays{};  // values, then state
  };
  Piece piece(uint32_t first, size_t most) const;
  const PenaltyMark& mark() const { return now_; }
  // `mark`: that of the other server. Throws CommError if it is out of range.
  void begin_filling(const PenaltyMark& mark);
  // Throws CommError if the keys are known, or the sizes do not fit.
  void fill(const Piece& piece);
  void filled() { filling_ = false; }
  bool is_filling() const { return filling_; }
  int arrays() const { return rows_.arrays(); }

  // A copy of all rows as they are now, until drop_snapshot().
  void take_snapshot();
  void drop_snapshot() { snapshot_.reset(); }
  bool has_snapshot() const { return snapshot_.has_value(); }
  // Keys and values of the rows that `head` asks for. Requires has_snapshot() with kFromSnapshot.
  FetchTableReply read_range(const FetchTableHead& head, std::vector<std::byte>& payload);

 private:
  // The places in `keys` of those that are here.
  std::vector<size_t> present(std::span<const Key> keys) const;
  void apply_to_present(const RuleStep& step, std::span<const Key> keys, const std::byte* gradient);
  void assign_to_present(int64_t array, std::span<const Key> keys, const std::byte* values);

  // Makes values current, which are those of these rows.
  void settle_row(std::byte* values, uint32_t row) const;
  void mark_row(uint32_t row, const PenaltyMark& mark);
  bool penalised() const { return penalty_.any(); }

  bool filling_ = false;
  TableShape shape_;
  std::shared_ptr<const Rule> rule_;
  Penalty penalty_;
  KeyTable rows_;
  // Of rules with penalties: of each row, the update up to which its values are current.
  std::vector<PenaltyMark> marks_;
  PenaltyMark now_, next_;  // all updates so far; with the one that is applied
  std::optional<KeyTable> snapshot_;
  std::vector<std::byte> scratch_;  // rows of a block, one array after the other
};

}  // namespace yoke::ps::sparse
