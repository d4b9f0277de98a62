// A list of keys is cut into pieces: by server, then by the size of a message. Each piece is a call, which is
// sent again if the server does not know the list that its hash names, or (in a run) if it timed out.
#include "yoke/ps/sparse/client.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/ps/flight.h"
#include "yoke/ps/messages.h"
#include "yoke/ps/sparse/client_call.h"
#include "yoke/ps/sparse/compress.h"

namespace yoke::ps::sparse {
namespace {

using comm::Message;

}  // namespace

Client::Client(comm::Messenger& messenger, ClientOptions options)
    : messenger_(messenger),
      options_(std::move(options)),
      state_arrays_(options_.tables.size(), 0),
      lines_(static_cast<size_t>(std::max(0, options_.servers))),
      bits_(options_.seed) {
  if (options_.servers < 1 || options_.tables.empty() || options_.tables.size() > kMostTables ||
      options_.fixed_point < 0 || options_.fixed_point > 2)
    throw ConfigError("{} servers, {} tables and values of {} bytes: use 1 or more, 1 to {}, and 0 to 2.",
                      options_.servers, options_.tables.size(), options_.fixed_point, kMostTables);
  if (options_.ranks.parts() == 1) options_.ranks = {options_.workers};
  servers_ = options_.view ? options_.view
                           : std::make_shared<ServerView>(messenger_, options_.workers, options_.servers,
                                                          options_.replicas, /*at_start=*/0, options_.ranks);
  for (Line& line : lines_) line.lists.resize(options_.tables.size());
  open();
}

Client::~Client() {
  try {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return in_flight_.empty(); });
    lock.unlock();
    if (options_.says_goodbye) goodbye();
  } catch (const std::exception&) {
    // The servers are gone, or will notice that we are.
  }
}

const TableOptions& Client::table_at(int table) const {
  if (table < 0 || static_cast<size_t>(table) >= options_.tables.size())
    throw ConfigError("table {}: there are {}.", table, options_.tables.size());
  return options_.tables[static_cast<size_t>(table)];
}

size_t Client::row_bytes(int table) const {
  const TableOptions& one = table_at(table);
  return static_cast<size_t>(one.width) * size_of(one.type);
}

size_t Client::pushed_bytes(int table) const {
  const TableOptions& one = table_at(table);
  return static_cast<size_t>(one.pushed > 0 ? one.pushed : one.width) * size_of(one.type);
}

Message Client::ask(int server, const Message& message, std::span<std::byte> into) {
  for (Moves moves(options_.timeout);;) {
    const Deadline deadline = Deadline::after(options_.timeout);
    const int peer = servers_->peer_of(server);
    try {
      Message reply = messenger_.ask(peer, message, into, deadline).get();
      if (reply.kind != kMoved) return reply;
      servers_->learn(reply);
    } catch (const CommError& error) {
      if (servers_->moved(peer)) continue;
      if (!options_.late || !deadline.passed())
        throw CommError("{}: {}", server_name(peer - options_.workers, options_.ranks), error.what());
      options_.late();
      continue;
    }
    if (!moves.follow())
      throw CommError("{}: {}", server_name(peer - options_.workers, options_.ranks), moves.problem());
  }
}

void Client::open() {
  for (int server = 0; server < options_.servers; ++server) {
    for (size_t table = 0; table < options_.tables.size(); ++table) {
      const TableOptions& one = options_.tables[table];
      Message message;
      message.kind = kOpenTable;
      message.set_head(
          OpenTableHead{static_cast<int64_t>(table), one.width, one.keys, one.type, one.pushed, server});
      state_arrays_[table] = ask(server, message, {}).get_head<OpenTableReply>().state_arrays;
    }
  }
}

void Client::goodbye() {
  say_goodbye(messenger_, options_.workers, options_.servers, options_.ranks, servers_.get());
}

void Client::check(const char* verb, int table, std::span<const Key> keys, size_t bytes, size_t each) const {
  const TableOptions& one = table_at(table);
  if (bytes != keys.size() * each)
    throw ConfigError("{} of {} keys with {} bytes: expected {}.", verb, keys.size(), bytes,
                      keys.size() * each);
  bool ascending = true;
  for (size_t i = 1; i < keys.size(); ++i) ascending &= keys[i - 1] < keys[i];
  if (!ascending) throw ConfigError("{} to table {}: keys must ascend, each once.", verb, table);
  if (!keys.empty() && keys.back() >= one.keys)
    throw ConfigError("{} of key {}: table {} has {} keys.", verb, keys.back(), table, one.keys);
}

std::vector<Client::Piece> Client::pieces_of(int table, std::span<const Key> keys) const {
  const KeySplit split{options_.tables[static_cast<size_t>(table)].keys, options_.servers};
  const size_t most =
      std::max<size_t>(1, std::min(options_.message_bytes, kMessageBytes) /
                              (sizeof(Key) + std::max(row_bytes(table), pushed_bytes(table))));
  std::vector<Piece> pieces;
  size_t at = 0;
  for (int server = 0; server < options_.servers && at < keys.size(); ++server) {
    auto last =
        std::lower_bound(keys.begin() + static_cast<ptrdiff_t>(at), keys.end(), split.begin_of(server + 1));
    const auto end = static_cast<size_t>(last - keys.begin());
    while (at < end) {
      const size_t here = std::min(most, end - at);
      pieces.push_back({server, at, at + here});
      at += here;
    }
  }
  return pieces;
}

std::shared_ptr<Client::Operation> Client::begin_operation(size_t calls, Done done) {
  auto operation = std::make_shared<Operation>();
  operation->left = calls;
  operation->done = std::move(done);
  std::lock_guard lock(mutex_);
  operation->timestamp = next_++;
  if (calls > 0) in_flight_.emplace(operation->timestamp, operation);
  return operation;
}

std::shared_ptr<Client::Call> Client::make_call(const std::shared_ptr<Operation>& operation, int table,
                                                int server, std::span<const Key> keys) {
  auto call = std::make_shared<Call>(options_.timeout);
  call->operation = operation;
  call->table = table;
  call->server = server;
  call->push.home = server;
  call->keys = keys;
  if (options_.key_cache && !keys.empty()) call->hash = hash_of(keys);
  return call;
}

// What a push sends for its values, the same when it is sent again.
void Client::encode(Call& call, std::span<const std::byte> values) {
  call.pushes = true;
  call.values = values;
  call.push.table = call.table;
  call.push.keys = static_cast<int32_t>(call.keys.size());
  if (options_.fixed_point > 0) {
    const TableOptions& table = options_.tables[static_cast<size_t>(call.table)];
    call.fixed.resize(values.size() / size_of(table.type) * static_cast<size_t>(options_.fixed_point));
    std::lock_guard lock(mutex_);
    call.push.unit = to_fixed_point(values, table.type, options_.fixed_point, bits_, call.fixed.data());
    call.push.flags |= options_.fixed_point == 1 ? kInt8 : kInt16;
    call.values = call.fixed;
  }
  if (!options_.compress) return;
  call.packed = compress(call.values);
  if (call.packed.empty()) return;
  call.push.flags |= kCompressed;
  call.unpacked = call.values.size();
  call.values = call.packed;
}

Client::Timestamp Client::start(const std::shared_ptr<Operation>& operation, int table,
                                std::span<const Key> keys, const std::vector<Piece>& pieces,
                                const std::function<void(Call&, const Piece&)>& prepare) {
  if (pieces.empty() && operation->done) operation->done("");
  for (const Piece& piece : pieces) {
    auto call = make_call(operation, table, piece.server, keys.subspan(piece.begin, piece.count()));
    call->range = piece.range;
    prepare(*call, piece);
    send(call);
  }
  return operation->timestamp;
}

// Of a push outside of updates and rounds, for its server to recognise.
void Client::number(Call& call) {
  std::lock_guard lock(mutex_);
  Line& line = lines_[static_cast<size_t>(call.server)];
  call.push.sequence = line.next++;
  line.open.insert(call.push.sequence);
}

Client::Timestamp Client::push(int table, std::span<const Key> keys, std::span<const std::byte> values,
                               Done done) {
  const size_t each = pushed_bytes(table);
  check("push", table, keys, values.size(), each);
  auto prepare = [&](Call& call, const Piece& piece) {
    encode(call, piece.of(values, each));
    number(call);
  };
  const std::vector<Piece> pieces = pieces_of(table, keys);
  return start(begin_operation(pieces.size(), std::move(done)), table, keys, pieces, prepare);
}

Client::Timestamp Client::push_range(int table, Key begin, Key end, std::span<const Key> keys,
                                     std::span<const std::byte> values, Done done) {
  const size_t each = pushed_bytes(table);
  check("push", table, keys, values.size(), each);
  const auto first = static_cast<size_t>(std::lower_bound(keys.begin(), keys.end(), begin) - keys.begin());
  const auto last = static_cast<size_t>(std::lower_bound(keys.begin(), keys.end(), end) - keys.begin());
  const size_t count = last > first ? last - first : 0;
  return push(table, keys.subspan(first, count), values.subspan(first * each, count * each), std::move(done));
}

Client::Timestamp Client::pull(int table, std::span<const Key> keys, std::span<std::byte> into, Done done) {
  const size_t each = row_bytes(table);
  check("pull", table, keys, into.size(), each);
  auto prepare = [&](Call& call, const Piece& piece) { call.into = piece.of(into, each); };
  const std::vector<Piece> pieces = pieces_of(table, keys);
  return start(begin_operation(pieces.size(), std::move(done)), table, keys, pieces, prepare);
}

Message Client::round_message(const Call& call, int32_t flags) {
  const auto keys = static_cast<int32_t>(call.keys.size());
  const auto [begin, end] = call.range;
  if (!call.pushes)
    return message_with(
        kPullRound, PullRoundHead{call.table, flags, keys, call.server, begin, end, call.time, call.hash});
  return message_with(kPushRound, PushRoundHead{call.table, flags | call.push.flags, keys, call.server, begin,
                                                end, call.time, call.hash, call.push.unit});
}

// Lists that the server should have are named; others are marked to be kept there.
Message Client::message_of(Call& call) {
  bool cached = false;
  const bool may_cache = options_.key_cache && !call.keys.empty();
  const size_t list = call.keys.size_bytes();
  {
    std::lock_guard lock(mutex_);
    Line& line = lines_[static_cast<size_t>(call.server)];
    SentLists& lists = line.lists[static_cast<size_t>(call.table)];
    if (call.in_full) lists.forget(call.hash);
    cached = may_cache && lists.has(call.hash);
    if (may_cache) lists.sent(call.hash, list);
    if (call.pushes && !line.open.empty()) call.push.settled = *line.open.begin();
    ++traffic_.messages;
    traffic_.sent += static_cast<int64_t>(call.values.size() + (cached ? 0 : list));
    traffic_.keys_saved += static_cast<int64_t>(cached ? list : 0);
    if (!call.fixed.empty())
      traffic_.values_saved +=
          static_cast<int64_t>(call.keys.size() * pushed_bytes(call.table) - call.fixed.size());
    if (!call.packed.empty())
      traffic_.packed_saved += static_cast<int64_t>(call.unpacked - call.packed.size());
  }
  int32_t flags = cached ? kCachedKeys : may_cache ? kKeepKeys : 0;
  if (!call.pushes && options_.compress) flags |= kCompressed;
  Message message;
  if (!call.range.empty()) {
    message = round_message(call, flags);
  } else if (call.pushes) {
    PushTableHead head = call.push;
    head.flags |= flags;
    head.hash = call.hash;
    message.kind = kPushTable;
    message.set_head(head);
  } else {
    message.kind = kPullTable;
    message.set_head(PullTableHead{call.table, flags, static_cast<int64_t>(call.keys.size()), call.version,
                                   call.hash, call.server});
  }
  if (cached) {
    message.payload = call.values;
  } else if (call.values.empty()) {
    message.payload = std::as_bytes(call.keys);
  } else {
    call.payload.resize(list + call.values.size());
    std::memcpy(call.payload.data(), call.keys.data(), list);
    std::memcpy(call.payload.data() + list, call.values.data(), call.values.size());
    message.payload = call.payload;
  }
  return message;
}

void Client::send(const std::shared_ptr<Call>& call) {
  call->deadline = Deadline::after(options_.timeout);
  try {
    call->peer = servers_->peer_of(call->server);
    messenger_.ask_then(
        call->peer, message_of(*call), call->into, call->deadline,
        [this, call](const Message& reply, const std::string& error) { came(call, reply, error); });
  } catch (const Error& error) {
    over(call, error.what());  // nothing was sent
  }
}

void Client::came(const std::shared_ptr<Call>& call, const Message& reply, const std::string& error) {
  if (!error.empty()) {
    if (servers_->moved(call->peer)) return send(call);
    if (!options_.late || !call->deadline.passed()) return over(call, error);
    std::lock_guard lock(mutex_);
    late_.push_back(call);
    ended_.notify_all();
    return;
  }
  std::string problem;
  try {
    if (reply.kind == kMoved) {
      servers_->learn(reply);
      if (call->moves.follow()) return send(call);
      return over(call, call->moves.problem());
    }
    const auto head = reply.get_head<TableReply>();
    if (head.unknown_keys != 0 && !call->in_full) {
      call->in_full = true;
      return send(call);
    }
    std::span<const std::byte> values = reply.payload;
    if (head.compressed != 0 && head.unknown_keys == 0) {
      const std::vector<std::byte> frame(values.begin(), values.end());  // it lies where the values go
      decompress(frame, call->into);
      values = call->into;
    }
    if (head.unknown_keys != 0 || values.size() != call->into.size())
      problem = fmt::format("it answered with {} bytes, but {} were requested", reply.payload.size(),
                            call->into.size());
    std::lock_guard lock(mutex_);
    traffic_.received += static_cast<int64_t>(reply.payload.size());
    traffic_.packed_saved += static_cast<int64_t>(values.size()) - static_cast<int64_t>(reply.payload.size());
    call->operation->replies.emplace_back(call->server, head);
  } catch (const CommError& wrong) {
    problem = wrong.what();
  }
  over(call, problem);
}

void Client::over(const std::shared_ptr<Call>& call, const std::string& error) {
  const std::shared_ptr<Operation> operation = call->operation;
  Done done;
  std::shared_ptr<const void> memory;
  std::string first_error;
  {
    std::lock_guard lock(mutex_);
    if (call->pushes && call->push.sequence > 0 && (call->push.flags & kInUpdate) == 0)
      lines_[static_cast<size_t>(call->server)].open.erase(call->push.sequence);
    if (!error.empty() && operation->error.empty())
      operation->error =
          fmt::format("{}: {}", server_name(call->peer - options_.workers, options_.ranks), error);
    if (--operation->left > 0) return;
    done = std::move(operation->done);
    memory = std::move(operation->memory);
    first_error = operation->error;
    if (!done && !first_error.empty()) failed_[operation->timestamp] = first_error;
  }
  if (done) done(first_error);
  std::lock_guard lock(mutex_);
  in_flight_.erase(operation->timestamp);
  ended_.notify_all();
}

// Called by a waiting thread, without the lock.
void Client::send_late() {
  std::vector<std::shared_ptr<Call>> late;
  {
    std::lock_guard lock(mutex_);
    late = std::exchange(late_, {});
  }
  try {
    options_.late();
  } catch (const std::exception& error) {
    for (const auto& call : late) over(call, error.what());
    throw;
  }
  for (const auto& call : late) send(call);
}

void Client::wait(Timestamp timestamp) {
  std::unique_lock lock(mutex_);
  for (;;) {
    ended_.wait(lock, [&] { return !late_.empty() || in_flight_.count(timestamp) == 0; });
    if (in_flight_.count(timestamp) == 0) break;
    lock.unlock();
    send_late();
    lock.lock();
  }
  auto failed = failed_.extract(timestamp);
  if (!failed.empty()) throw CommError("{}", failed.mapped());
}

Traffic Client::traffic() const {
  std::lock_guard lock(mutex_);
  return traffic_;
}

Client::Rows Client::pull_range(int table, Key begin, Key end) {
  FetchTableHead wanted;
  wanted.table = table;
  wanted.begin = begin;
  wanted.end = end;
  return fetch_range(wanted);
}

}  // namespace yoke::ps::sparse
