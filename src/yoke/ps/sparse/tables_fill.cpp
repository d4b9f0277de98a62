// The part of Tables that copies them to another server while they change.
//
// All but the rows goes first, so the copy follows every change from then on; changes of rows that have not
// arrived are dropped, because the rows that come later include them. Rows lie in the order of their creation
// and never move, so they are sent in that order, up to the last one of the moment; rows that are created
// after it are created by the changes.
#include <algorithm>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/ps/sparse/tables.h"

namespace yoke::ps::sparse {
namespace {

constexpr size_t kPieceBytes = 256 << 10;
constexpr int64_t kMostTableLives = 1 << 20;

struct TablesState {
  int64_t tables = 0;
  int64_t updates = 0;
  int64_t version = 0;
  double square = -1;
};

struct WorkerState {
  int64_t life = 0;
  int64_t applied = -1;
};

struct PieceHead {
  int64_t table = 0;
  int64_t last = 0;  // of its table
};

}  // namespace

std::vector<std::byte> Tables::save_state() {
  Saver saver;
  saver(TablesState{static_cast<int64_t>(tables_.size()), updates_, version_, square_});
  for (size_t i = 0; i < tables_.size(); ++i) {
    saver(static_cast<int64_t>(tables_[i] ? 1 : 0));
    if (!tables_[i]) continue;
    saver(opened_[i]);
    saver(tables_[i]->mark());
    saver(i < rounds_.size() && rounds_[i] ? rounds_[i]->taken().all() : std::vector<RangeClock::Timed>{});
  }
  for (Worker& one : workers_) {
    saver(WorkerState{one.life, one.applied});
    one.taken.exchange(saver);
  }
  if (options_.copies_gradients) held_.save(saver);
  return saver.take();
}

void Tables::load_state(std::span<const std::byte> bytes) {
  Loader loader(bytes);
  TablesState state;
  loader(state);
  if (!tables_.empty() || state.tables < 0 || state.tables > kMostTables || state.updates < 0 ||
      !options_.make_rule)
    throw CommError("a copy of {} tables after {} updates", state.tables, state.updates);
  for (int64_t i = 0; i < state.tables; ++i) {
    int64_t exists = 0;
    loader(exists);
    if (exists == 0) continue;
    OpenTableHead head;
    loader(head);
    check_open(0, head);
    if (head.table != i) throw CommError("a copy of table {} in place of {}", head.table, i);
    PenaltyMark mark;
    loader(mark);
    create(head, 0);
    tables_.back()->begin_filling(mark);
    load_rounds(loader, head.table);
  }
  for (size_t rank = 0; rank < workers_.size(); ++rank) {
    WorkerState one;
    loader(one);
    if (one.life < 0 || one.life > kMostTableLives)
      throw CommError("a worker was restarted {} times", one.life);
    if (one.life > workers_[rank].life) worker_back(static_cast<int>(rank), one.life);
    workers_[rank].applied = one.life == workers_[rank].life ? one.applied : -1;
    workers_[rank].taken.exchange(loader);
  }
  auto row_bytes = [&](int table) { return table_of(0, table).shape().pushed_bytes(); };
  if (options_.copies_gradients) held_.load(loader, row_bytes);
  if (!loader.at_end()) throw CommError("the state of tables is longer than expected");
  updates_ = state.updates;
  version_ = state.version;
  square_ = state.square;
}

void Tables::load_rounds(Loader& loader, int64_t table) {
  std::vector<RangeClock::Timed> taken;
  loader(taken);
  const auto number = static_cast<int32_t>(table);
  for (const auto& [range, time] : taken) {
    if (time == 0) continue;
    check_round(0, PullRoundHead{.table = number, .begin = range.begin, .end = range.end, .time = time},
                table_of(0, table).shape());
    rounds_of(number).was_taken(range, time);
  }
}

std::vector<std::byte> Tables::save_rows(Cursor& cursor) const {
  while (cursor.table < cursor.tables && !tables_[cursor.table]) ++cursor.table;
  if (cursor.table >= cursor.tables) return {};
  const Table& table = *tables_[cursor.table];
  const size_t each =
      sizeof(Key) + sizeof(PenaltyMark) + table.shape().value_bytes() * static_cast<size_t>(table.arrays());
  const Table::Piece piece = table.piece(cursor.row, std::max<size_t>(1, kPieceBytes / each));
  cursor.row += static_cast<uint32_t>(piece.keys.size());
  const bool last = cursor.row == table.rows();
  Saver saver;
  saver(PieceHead{static_cast<int64_t>(cursor.table), last ? 1 : 0});
  saver(piece.keys);
  saver(piece.marks);
  for (const std::vector<std::byte>& array : piece.arrays) saver.put_bytes(array);
  if (last) {
    ++cursor.table;
    cursor.row = 0;
  }
  return saver.take();
}

void Tables::load_rows(std::span<const std::byte> bytes) {
  Loader loader(bytes);
  PieceHead head;
  Table::Piece piece;
  loader(head);
  loader(piece.keys);
  loader(piece.marks);
  Table& table = table_of(0, head.table);
  if (!table.is_filling()) throw CommError("rows of table {}, which is complete", head.table);
  const size_t size = piece.keys.size() * table.shape().value_bytes();
  for (int array = 0; array < table.arrays() && size > 0; ++array) {
    const std::span<const std::byte> values = loader.get_bytes(size);
    piece.arrays.emplace_back(values.begin(), values.end());
  }
  if (!loader.at_end()) throw CommError("rows of table {} that are too long", head.table);
  table.fill(piece);
  if (head.last != 0) table.filled();
}

bool Tables::is_filled() const {
  return std::none_of(tables_.begin(), tables_.end(),
                      [](const auto& table) { return table && table->is_filling(); });
}

// Gradients that no change has brought are sent again.
void Tables::stand_back(const std::function<void(const comm::Messenger::Answer&)>& park) {
  options_.serves = false;
  for (const Waiting& one : std::exchange(waiting_, {})) {
    --worker(one.from).waiting;
    park(one.to);
  }
  for (const WaitingRound& one : std::exchange(waiting_rounds_, {})) {
    --worker(one.from).waiting;
    park(one.to);
  }
  for (auto& rounds : rounds_)
    if (rounds) rounds->forget_given();
  for (const Unanswered& push : std::exchange(unanswered_, {})) park(push.answer);
  if (!options_.copies_gradients) held_.clear();
}

}  // namespace yoke::ps::sparse
