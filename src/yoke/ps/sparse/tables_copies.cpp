// The part of Tables that keeps copies on other servers: what is logged of updates, and what a copy does with
// the entries of its home.
#include <algorithm>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/ps/sparse/tables.h"

namespace yoke::ps::sparse {

namespace {

int64_t keys_of(const std::vector<std::optional<SparseSum>>& sums) {
  int64_t keys = 0;
  for (const auto& sum : sums) keys += sum ? static_cast<int64_t>(sum->keys().size()) : 0;
  return keys;
}

}  // namespace

void Tables::log_update(const Update& update, const Sums& sums, double weight, double square) {
  if (!is_copied()) return;
  const bool there = options_.copies_gradients;
  if (!there) log_sum(sums);
  TableUpdateChange change{update.head.number,
                           update.head.version,
                           update.head.lr,
                           weight,
                           square,
                           there ? 1 : 0,
                           static_cast<int64_t>(update.from.size()),
                           there ? 0 : keys_of(sums)};
  EntryWriter entry(Change::kTableUpdate);
  entry.put(change);
  for (const Contributor& one : update.from) entry.put(one);
  options_.log(entry.take());
}

// In messages of the usual size.
void Tables::log_sum(const Sums& sums) {
  int64_t first = 1;
  for (size_t table = 0; table < sums.size(); ++table)
    if (sums[table]) log_part(table, *sums[table], first);
}

void Tables::log_part(size_t table, const SparseSum& sum, int64_t& first) {
  const size_t each = tables_[table]->shape().pushed_bytes();
  const std::span<const Key> keys = sum.keys();
  const auto most = static_cast<size_t>(keys_per_message(each));
  for (size_t at = 0; at < keys.size(); at += most) {
    const size_t count = std::min(most, keys.size() - at);
    options_.log(EntryWriter(Change::kTablePart)
                     .put(TableChange{.table = static_cast<int64_t>(table),
                                      .keys = static_cast<int64_t>(count),
                                      .first = std::exchange(first, 0)})
                     .put_bytes(std::as_bytes(keys.subspan(at, count)))
                     .put_bytes({sum.values() + at * each, count * each})
                     .take());
  }
}

void Tables::log_round(int32_t table, const Rounds::Complete& one) {
  if (!is_copied()) return;
  int64_t first = 1;
  log_part(static_cast<size_t>(table), one.sum, first);
  options_.log(EntryWriter(Change::kTableRound)
                   .put(TableRoundChange{table, one.range.begin, one.range.end, one.time,
                                         static_cast<int64_t>(one.sum.keys().size())})
                   .take());
}

void Tables::change(EntryReader& entry, Change kind) {
  switch (kind) {
    case Change::kTableOpen:
      return change_open(entry);
    case Change::kTableUpdate:
      return change_update(entry);
    case Change::kTableRound:
      return change_round(entry);
    default:
      return change_rows(entry, kind);
  }
}

void Tables::change_open(EntryReader& entry) {
  const auto head = entry.get<OpenTableHead>();
  check_open(0, head);
  if (!options_.make_rule) throw CommError("a copy of table {} has no rule", head.table);
  create(head, 0);
}

void Tables::change_rows(EntryReader& entry, Change kind) {
  if (kind == Change::kTableAssign) {
    const auto head = entry.get<AssignTableHead>();
    Table& table = table_of(0, head.table);
    check_assign(0, head, table.shape());
    const std::vector<std::byte> bytes = entry.aligned_rest();
    const KeyedBytes rows =
        split_payload(0, head.keys, bytes, table.shape().value_bytes(), /*flags=*/0, table.shape());
    table.assign(head.array, rows.keys, rows.values.data());
    version_ = std::max(version_, head.version);
    return;
  }
  const auto change = entry.get<TableChange>();
  if (change.worker < 0 || change.worker >= options_.workers)
    throw CommError("rank {} is not a worker", change.worker);
  const auto from = static_cast<int>(change.worker);
  PushTableHead head;
  if (kind == Change::kTableHold) head = entry.get<PushTableHead>();
  Table& table = table_of(from, change.table);
  const std::vector<std::byte> bytes = entry.aligned_rest();
  const KeyedBytes rows =
      split_payload(from, change.keys, bytes, table.shape().pushed_bytes(), /*flags=*/0, table.shape());
  if (change.life > worker(from).life) worker_back(from, change.life);
  switch (kind) {
    case Change::kTableNow:
      table.apply({options_.lr, change.scale}, rows.keys, rows.values.data());
      worker(from).taken.settle(change.settled);
      if (!worker(from).taken.has(change.sequence)) worker(from).taken.take(change.sequence);
      square_ = -1;
      return;
    case Change::kTableHold: {
      check_push(from, head);
      const HeldGradients::Name name{from, change.life, head.sequence};
      if (!held_.has(name, head))
        held_.add(
            name, head,
            {head.table, {rows.keys.begin(), rows.keys.end()}, {rows.values.begin(), rows.values.end()}});
      return;
    }
    default: {
      if (change.first != 0) incoming_.clear();
      incoming_.resize(tables_.size());
      auto& sum = incoming_[static_cast<size_t>(change.table)];
      if (!sum) sum.emplace(table.shape().type, table.shape().pushed);
      sum->add(rows.keys, rows.values, 1);
    }
  }
}

void Tables::change_update(EntryReader& entry) {
  const auto change = entry.get<TableUpdateChange>();
  if (change.number <= updates_)
    throw CommError("update {} of the copy of a table after {}", change.number, updates_);
  std::vector<Contributor> from;
  for (int64_t left = change.contributors; left > 0; --left) {
    from.push_back(entry.get<Contributor>());
    const Contributor& one = from.back();
    if (one.worker < 0 || one.worker >= options_.workers)
      throw CommError("rank {} is not a worker", one.worker);
    if (one.life > worker(static_cast<int>(one.worker)).life)
      worker_back(static_cast<int>(one.worker), one.life);
  }
  // Parts of an update that a lost server did not complete are void; the next one may have none.
  Sums sums = std::exchange(incoming_, {});
  if (change.there != 0)
    sums = sums_of(gradients_of(from));
  else if (change.keys == 0)
    sums.clear();
  else if (keys_of(sums) != change.keys)
    throw CommError("update {} of tables has a sum of {} keys, of which {} arrived", change.number,
                    change.keys, keys_of(sums));
  apply_sums(sums, change.lr, change.weight);
  square_ = change.square;
  made({.number = change.number, .version = change.version}, from);
  while (!decided_.empty() && decided_.front().head.number <= updates_) decided_.pop_front();
  reached(change.version);
}

void Tables::change_round(EntryReader& entry) {
  const auto change = entry.get<TableRoundChange>();
  Table& table = table_of(0, change.table);
  const auto number = static_cast<int32_t>(change.table);
  check_round(0,
              PullRoundHead{.table = number, .begin = change.begin, .end = change.end, .time = change.time},
              table.shape());
  // Parts without their last entry are void; a round may have none.
  const Sums sums = std::exchange(incoming_, {});
  const SparseSum* sum =
      static_cast<size_t>(number) < sums.size() && sums[static_cast<size_t>(number)] && change.keys > 0
          ? &*sums[static_cast<size_t>(number)]
          : nullptr;
  if (change.keys != (sum != nullptr ? static_cast<int64_t>(sum->keys().size()) : 0))
    throw CommError("round {} of table {} has a sum of {} keys that did not arrive", change.time, number,
                    change.keys);
  if (sum != nullptr) table.apply({options_.lr, 1}, sum->keys(), sum->values());
  rounds_of(number).was_taken({change.begin, change.end}, change.time);
}

void Tables::serve() {
  options_.serves = true;
  incoming_.clear();
  advance();
}

}  // namespace yoke::ps::sparse
