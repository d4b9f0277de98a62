// The part of Tables for rounds: gradients of all workers for a range of keys, applied together.
#include <algorithm>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/ps/sparse/tables.h"

namespace yoke::ps::sparse {

using comm::Message;
using comm::Messenger;

// Of a table that was opened.
Rounds& Tables::rounds_of(int32_t table) {
  const auto number = static_cast<size_t>(table);
  if (number >= rounds_.size()) rounds_.resize(number + 1);
  if (!rounds_[number]) {
    const TableShape& shape = tables_[number]->shape();
    rounds_[number] = std::make_unique<Rounds>(shape.end, options_.workers, shape.type, shape.pushed);
    for (size_t i = 0; i < workers_.size(); ++i)
      if (workers_[i].lost) rounds_[number]->lose(static_cast<int>(i));
  }
  return *rounds_[number];
}

void Tables::push_round(int from, const Message& request, const Messenger::Answer& answer) {
  auto head = request.get_head<PushRoundHead>();
  const TableShape& shape = table_of(from, head.table).shape();
  check_round(from, head, shape);
  const std::optional<Named> named = names(from, head.table, head.flags, head.keys, head.hash,
                                           request.payload, pushed_bytes(head.flags, shape));
  if (!named) return answer({message_with(kPushRound, TableReply{.unknown_keys = 1})});
  if (!named->keys.empty() && (named->keys.front() < head.begin || named->keys.back() >= head.end))
    throw CommError("worker {} sent keys {} to {} with a round of {} to {}; nothing was applied", from,
                    named->keys.front(), named->keys.back(), head.begin, head.end);
  const auto values = restored(head.flags, head.unit, head.keys, named->values, shape);
  check_finite(from, values, shape.type);
  Rounds& rounds = rounds_of(head.table);
  if (!rounds.add(from, {head.begin, head.end}, head.time, named->keys, values)) ++numbers_.duplicates;
  auto acknowledge = [this, answer] { answer_safely(answer, {message_with(kPushRound, TableReply{})}); };
  const KeyRange range{head.begin, head.end};
  // With copies it is acknowledged with its round: until then only this server has it.
  if (!is_copied() || rounds.taken(range) >= head.time)
    acknowledge();
  else
    await_round(from, head.table, range, head.time, answer, acknowledge);
  apply_rounds(head.table);
}

void Tables::apply_rounds(int32_t table) {
  const std::vector<Rounds::Complete> complete = rounds_of(table).take();
  for (const Rounds::Complete& one : complete) {
    log_round(table, one);
    tables_[static_cast<size_t>(table)]->apply({options_.lr, 1}, one.sum.keys(), one.sum.values());
  }
  if (!complete.empty()) rounds_applied(table);
}

// Answers requests that waited for one of these rounds.
void Tables::rounds_applied(int32_t table) {
  const Rounds& rounds = *rounds_[static_cast<size_t>(table)];
  std::vector<WaitingRound> ready;
  auto is_ready = [&](const WaitingRound& one) {
    return one.table == table && rounds.taken(one.range) >= one.time;
  };
  for (const WaitingRound& one : waiting_rounds_)
    if (is_ready(one)) ready.push_back(one);
  std::erase_if(waiting_rounds_, is_ready);
  for (const WaitingRound& one : ready) {
    --worker(one.from).waiting;
    one.answer();
  }
}

void Tables::await_round(int from, int32_t table, KeyRange range, int64_t time, const Messenger::Answer& to,
                         std::function<void()> answer) {
  count_waiting(from, time);
  waiting_rounds_.push_back({from, table, range, time, std::move(answer), to});
}

void Tables::pull_round(int from, const Message& request, const Messenger::Answer& answer) {
  auto head = request.get_head<PullRoundHead>();
  Table& table = table_of(from, head.table);
  check_round(from, head, table.shape());
  const std::optional<Named> named =
      names(from, head.table, head.flags, head.keys, head.hash, request.payload, /*each=*/0);
  if (!named) return answer({message_with(kPullRound, TableReply{.unknown_keys = 1})});
  const KeyRange range{head.begin, head.end};
  const bool packs = (head.flags & kCompressed) != 0;
  if (rounds_of(head.table).taken(range) >= head.time)
    return read_rows(table, named->keys, named->rows(), packs, answer);
  await_round(from, head.table, range, head.time, answer,
              [this, &table, list = named->list(), packs, answer] {
                read_rows(table, list->keys, &list->rows, packs, answer);
              });
}

std::optional<int> Tables::owes() const {
  if (std::optional<int> worker = update_owed_by()) return worker;
  for (const WaitingRound& one : waiting_rounds_)
    if (int worker = rounds_[static_cast<size_t>(one.table)]->owed_by(one.range, one.time); worker >= 0)
      return worker;
  return std::nullopt;
}

}  // namespace yoke::ps::sparse
