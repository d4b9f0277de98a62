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

std::vector<Client::RoundPiece> Client::pieces_of_round(int table, KeyRange range,
                                                        std::span<const Key> keys) const {
  const KeySplit split{options_.tables[static_cast<size_t>(table)].keys, options_.servers};
  const std::vector<Piece> pieces = pieces_of(table, keys);
  std::vector<RoundPiece> rounds;
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
      rounds.push_back({*piece, {begin, end}});
      begin = end;
    }
    if (!sent) rounds.push_back({{server, 0, 0}, own});
  }
  return rounds;
}

Client::Timestamp Client::push_round(int table, KeyRange range, int64_t time, std::span<const Key> keys,
                                     std::span<const std::byte> values, Done done) {
  const size_t each = pushed_bytes(table);
  check("push", table, keys, values.size(), each);
  check_round(table, range, time, keys);
  const std::vector<RoundPiece> pieces = pieces_of_round(table, range, keys);
  auto operation = begin_operation(pieces.size(), std::move(done));
  for (const auto& [piece, covered] : pieces) {
    const size_t count = piece.end - piece.begin;
    auto call = make_call(operation, table, piece.server, keys.subspan(piece.begin, count));
    encode(*call, values.subspan(piece.begin * each, count * each));
    call->range = covered;
    call->time = time;
    send(call);
  }
  return operation->timestamp;
}

Client::Timestamp Client::pull_round(int table, KeyRange range, int64_t time, std::span<const Key> keys,
                                     std::span<std::byte> into, Done done) {
  const size_t each = row_bytes(table);
  check("pull", table, keys, into.size(), each);
  check_round(table, range, time, keys);
  std::vector<RoundPiece> pieces = pieces_of_round(table, range, keys);
  std::erase_if(pieces, [](const RoundPiece& one) { return one.piece.begin == one.piece.end; });
  auto operation = begin_operation(pieces.size(), std::move(done));
  if (pieces.empty() && operation->done) operation->done("");
  for (const auto& [piece, covered] : pieces) {
    const size_t count = piece.end - piece.begin;
    auto call = make_call(operation, table, piece.server, keys.subspan(piece.begin, count));
    call->into = into.subspan(piece.begin * each, count * each);
    call->range = covered;
    call->time = time;
    send(call);
  }
  return operation->timestamp;
}

}  // namespace yoke::ps::sparse
