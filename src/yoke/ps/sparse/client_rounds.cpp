// The part of Client for rounds. A range is cut at the servers' borders and where a message is full; every
// server that holds keys of it gets a message, so that its clocks go on.
#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/ps/messages.h"
#include "yoke/ps/sparse/client.h"
#include "yoke/ps/sparse/client_call.h"

namespace yoke::ps::sparse {

void Client::check_round(int table, KeyRange range, int64_t time, std::span<const Key> keys) const {
  const TableOptions& one = options_.tables[static_cast<size_t>(table)];
  if (range.empty() || range.end > one.keys || time < 1 || time > kMostVersion)
    throw ConfigError("round {} of keys {} to {}: table {} has {} keys, and rounds count from 1.", time,
                      range.begin, range.end, table, one.keys);
  if (!keys.empty() && (keys.front() < range.begin || keys.back() >= range.end))
    throw ConfigError("round {} of keys {} to {}: key {} lies outside.", time, range.begin, range.end,
                      keys.front() < range.begin ? keys.front() : keys.back());
}

std::vector<Client::Piece> Client::pieces_of_round(int table, KeyRange range,
                                                   std::span<const Key> keys) const {
  const KeySplit split{options_.tables[static_cast<size_t>(table)].keys, options_.servers};
  const std::vector<Piece> pieces = pieces_of(table, keys);
  std::vector<Piece> rounds;
  auto piece = pieces.begin();
  for (int server = 0; server < options_.servers; ++server) {
    const KeyRange own{std::max(range.begin, split.begin_of(server)),
                       std::min(range.end, split.begin_of(server + 1))};
    if (own.empty()) continue;
    Key begin = own.begin;
    bool sent = false;
    for (; piece != pieces.end() && piece->server == server; ++piece, sent = true) {
      const auto next = std::next(piece);
      const bool last = next == pieces.end() || next->server != server;
      const Key end = last ? own.end : keys[next->begin];
      rounds.push_back({server, piece->begin, piece->end, {begin, end}});
      begin = end;
    }
    if (!sent) rounds.push_back({server, 0, 0, own});
  }
  return rounds;
}

Client::Timestamp Client::push_round(int table, KeyRange range, int64_t time, std::span<const Key> keys,
                                     std::span<const std::byte> values, Done done) {
  const size_t each = pushed_bytes(table);
  check("push", table, keys, values.size(), each);
  check_round(table, range, time, keys);
  auto prepare = [&](Call& call, const Piece& piece) {
    encode(call, piece.of(values, each));
    call.time = time;
  };
  const std::vector<Piece> pieces = pieces_of_round(table, range, keys);
  return start(begin_operation(pieces.size(), std::move(done)), table, keys, pieces, prepare);
}

Client::Timestamp Client::pull_round(int table, KeyRange range, int64_t time, std::span<const Key> keys,
                                     std::span<std::byte> into, Done done) {
  const size_t each = row_bytes(table);
  check("pull", table, keys, into.size(), each);
  check_round(table, range, time, keys);
  std::vector<Piece> pieces = pieces_of_round(table, range, keys);
  std::erase_if(pieces, [](const Piece& one) { return one.count() == 0; });
  auto prepare = [&](Call& call, const Piece& piece) {
    call.into = piece.of(into, each);
    call.time = time;
  };
  return start(begin_operation(pieces.size(), std::move(done)), table, keys, pieces, prepare);
}

}  // namespace yoke::ps::sparse
