// The part of Client for runs with a scheduler: start, gradients of minibatches, versions and snapshots.
#include <algorithm>
#include <limits>

#include "yoke/base/error.h"
#include "yoke/ps/flight.h"
#include "yoke/ps/messages.h"
#include "yoke/ps/sparse/client.h"
#include "yoke/ps/sparse/client_call.h"

namespace yoke::ps::sparse {

using comm::Message;

void Client::assign(int table, int64_t array, std::span<const Key> keys, std::span<const std::byte> values,
                    int64_t version) {
  const size_t each = row_bytes(table);
  check("assign", table, keys, values.size(), each);
  std::vector<std::byte> payload;
  std::vector<Piece> pieces = pieces_of(table, keys);
  for (int server = 0; server < options_.servers; ++server) pieces.push_back({server, 0, 0});
  for (const Piece& piece : pieces) {
    const auto list = std::as_bytes(keys.subspan(piece.begin, piece.count()));
    const auto rows = piece.of(values, each);
    payload.assign(list.begin(), list.end());
    payload.insert(payload.end(), rows.begin(), rows.end());
    Message message;
    message.kind = kAssignTable;
    message.set_head(
        AssignTableHead{table, array, static_cast<int64_t>(piece.count()), version, piece.server});
    message.payload = payload;
    ask(piece.server, message, {});
  }
}

// Each server is told how many messages make up its part of the gradient, and gets at least one: it would
// wait for the gradient otherwise.
void Client::push_gradient(int64_t minibatch, double scale, bool measure, std::span<const Part> parts) {
  struct Planned {
    const Part* part;
    size_t begin, end;
  };
  std::vector<std::vector<Planned>> planned(static_cast<size_t>(options_.servers));
  for (const Part& part : parts) {
    check("push", part.table, part.keys, part.values.size(), pushed_bytes(part.table));
    for (const Piece& piece : pieces_of(part.table, part.keys))
      planned[static_cast<size_t>(piece.server)].push_back({&part, piece.begin, piece.end});
  }
  const Part nothing{};
  size_t calls = 0;
  for (auto& own : planned) {
    if (own.empty()) own.push_back({&nothing, 0, 0});
    calls += own.size();
  }
  auto operation = begin_operation(calls, {});
  for (size_t server = 0; server < planned.size(); ++server) {
    const std::vector<Planned>& own = planned[server];
    for (size_t i = 0; i < own.size(); ++i) {
      const Part& part = *own[i].part;
      const size_t each = pushed_bytes(part.table), count = own[i].end - own[i].begin;
      auto call =
          make_call(operation, part.table, static_cast<int>(server), part.keys.subspan(own[i].begin, count));
      encode(*call, part.values.subspan(own[i].begin * each, count * each));
      call->push.flags |= kInUpdate | (measure ? kMeasure : 0);
      call->push.sequence = minibatch;
      call->push.scale = scale;
      call->push.part = static_cast<int32_t>(i);
      call->push.parts = static_cast<int32_t>(own.size());
      send(call);
    }
  }
  wait(operation->timestamp);
}

Client::Pending Client::begin_pull_at(int64_t version, int table, std::span<const Key> keys,
                                      std::span<std::byte> into, bool all_servers,
                                      std::shared_ptr<const void> memory) {
  const size_t each = row_bytes(table);
  check("pull", table, keys, into.size(), each);
  std::vector<Piece> pieces = pieces_of(table, keys);
  for (int server = 0; all_servers && server < options_.servers; ++server) {
    auto of_server = [&](const Piece& piece) { return piece.server == server; };
    if (std::none_of(pieces.begin(), pieces.end(), of_server)) pieces.push_back({server, 0, 0});
  }
  auto prepare = [&](Call& call, const Piece& piece) {
    call.into = piece.of(into, each);
    call.version = version;
  };
  auto operation = begin_operation(pieces.size(), {});
  operation->version = version;
  operation->all_servers = all_servers;
  if (!pieces.empty()) operation->memory = std::move(memory);
  start(operation, table, keys, pieces, prepare);
  return operation;
}

Client::Pulled Client::end_pull_at(const Pending& pending) {
  wait(pending->timestamp);
  Pulled pulled{pending->version, pending->version};
  if (pending->replies.empty()) return pulled;
  pulled.oldest = std::numeric_limits<int64_t>::max();
  std::vector<double> squares(static_cast<size_t>(options_.servers), pending->all_servers ? -1 : 0);
  for (const auto& [server, reply] : pending->replies) {
    pulled.oldest = std::min(pulled.oldest, reply.version);
    pulled.newest = std::max(pulled.newest, reply.version);
    squares[static_cast<size_t>(server)] = reply.square;
  }
  pulled.square = 0;
  bool measured = pending->all_servers;
  for (double square : squares) {
    measured &= !(square < 0);
    pulled.square += square;
  }
  if (!measured) pulled.square = -1;
  return pulled;
}

Client::Rows Client::fetch(int table, int64_t array, From from, int64_t version) {
  FetchTableHead wanted;
  wanted.table = table;
  wanted.flags = from == From::kSnapshot ? kFromSnapshot : 0;
  wanted.array = array;
  wanted.version = version;
  return fetch_range(wanted);
}

Client::Rows Client::fetch_range(const FetchTableHead& wanted) {
  check("fetch", wanted.table, {}, 0, 0);
  const TableOptions& shape = options_.tables[static_cast<size_t>(wanted.table)];
  const KeySplit split{shape.keys, options_.servers};
  const size_t each = row_bytes(wanted.table);
  std::vector<std::byte> payload;
  Rows rows;
  for (int server = 0; server < options_.servers; ++server) {
    FetchTableHead head = wanted;
    head.home = server;
    head.begin = std::max(wanted.begin, split.begin_of(server));
    head.end = std::min(wanted.end, split.begin_of(server + 1));
    head.most = keys_per_message(each);
    payload.resize(static_cast<size_t>(head.most) * (sizeof(Key) + each));
    for (bool more = head.begin < head.end; more;) {
      Message message;
      message.kind = kFetchTable;
      message.set_head(head);
      const Message answer = ask(server, message, payload);
      const auto reply = answer.get_head<FetchTableReply>();
      const auto count = static_cast<size_t>(std::max<int64_t>(0, reply.keys));
      if (reply.keys < 0 || reply.keys > head.most || answer.payload.size() != count * (sizeof(Key) + each) ||
          (reply.more != 0 && count == 0))
        throw CommError("{} answered with {} bytes for {} keys", server_name(server, options_.ranks),
                        answer.payload.size(), reply.keys);
      const auto* keys = reinterpret_cast<const Key*>(answer.payload.data());
      rows.keys.insert(rows.keys.end(), keys, keys + count);
      const auto values = answer.payload.subspan(count * sizeof(Key));
      rows.values.insert(rows.values.end(), values.begin(), values.end());
      {
        std::lock_guard lock(mutex_);
        ++traffic_.messages;
        traffic_.received += static_cast<int64_t>(answer.payload.size());
      }
      more = reply.more != 0;
      if (more) head.begin = rows.keys.back() + 1;
    }
  }
  return rows;
}

}  // namespace yoke::ps::sparse
