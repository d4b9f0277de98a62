#include "yoke/ps/sparse/tables.h"

#include <algorithm>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/ps/sparse/compress.h"
#include "yoke/ps/sparse/fixed_point.h"

namespace yoke::ps::sparse {
namespace {

using comm::Message;
using comm::Messenger;
using comm::Reply;

constexpr size_t kMostWaiting = 4096;  // requests of a worker that wait for a version
constexpr size_t kMostSpare = 32;      // buffers of replies

}  // namespace

Tables::Tables(TablesOptions options)
    : options_(std::move(options)),
      workers_(static_cast<size_t>(options_.workers)),
      held_(options_.workers),
      spare_(std::make_shared<std::vector<std::vector<std::byte>>>()) {
  for (Worker& one : workers_) one.lists.resize(kMostTables);
}

size_t Tables::most_bytes(uint16_t kind) {
  const bool carries = kind != kOpenTable && kind != kFetchTable;
  // One row may be larger than a message.
  return carries ? kMessageBytes + kMostWidth * sizeof(double) : 0;
}

Tables::Numbers& Tables::Numbers::operator+=(const Numbers& other) {
  rows += other.rows;
  bytes_held += other.bytes_held;
  duplicates += other.duplicates;
  cached_lists += other.cached_lists;
  payload_bytes += other.payload_bytes;
  return *this;
}

Tables::Numbers Tables::numbers() const {
  Numbers numbers = numbers_;
  numbers.bytes_held += held_.bytes();
  for (const auto& rounds : rounds_)
    if (rounds) numbers.bytes_held += rounds->bytes();
  for (const auto& table : tables_) {
    if (!table) continue;
    numbers.rows += table->rows();
    numbers.bytes_held += table->bytes_held();
  }
  for (const Worker& one : workers_)
    for (const KeptLists& lists : one.lists) numbers.bytes_held += lists.bytes();
  return numbers;
}

void Tables::handle(int from, const Message& request, const Messenger::Answer& answer) {
  numbers_.payload_bytes += static_cast<int64_t>(request.payload.size());
  switch (request.kind) {
    case kOpenTable:
      return open(from, request, answer);
    case kAssignTable:
      return assign(from, request, answer);
    case kPushTable:
      return push(from, request, answer);
    case kPullTable:
      return pull(from, request, answer);
    case kPushRound:
      return push_round(from, request, answer);
    case kPullRound:
      return pull_round(from, request, answer);
    default:
      return fetch(from, request, answer);
  }
}

int64_t Tables::home_of(const Message& request) {
  switch (request.kind) {
    case kOpenTable:
      return request.get_head<OpenTableHead>().home;
    case kAssignTable:
      return request.get_head<AssignTableHead>().home;
    case kPushTable:
      return request.get_head<PushTableHead>().home;
    case kPullTable:
      return request.get_head<PullTableHead>().home;
    case kPushRound:
      return request.get_head<PushRoundHead>().home;
    case kPullRound:
      return request.get_head<PullRoundHead>().home;
    default:
      return request.get_head<FetchTableHead>().home;
  }
}

void Tables::open(int from, const Message& request, const Messenger::Answer& answer) {
  auto head = request.get_head<OpenTableHead>();
  check_open(from, head);
  if (!options_.make_rule)
    throw CommError("worker {} opens a table, but this server has no rule for it", from);
  create(head, from);
  if (is_copied()) options_.log(EntryWriter(Change::kTableOpen).put(head).take());
  const int64_t arrays = tables_[static_cast<size_t>(head.table)]->shape().state_arrays;
  answer_safely(answer, {message_with(kOpenTable, OpenTableReply{arrays})});
}

// Or checks that it is the same.
void Tables::create(const OpenTableHead& head, int from) {
  const KeySplit split{head.keys, options_.servers};
  TableShape shape{head.width, head.type, split.begin_of(options_.server),
                   split.begin_of(options_.server + 1)};
  shape.pushed = head.pushed > 0 ? head.pushed : head.width;
  const auto number = static_cast<size_t>(head.table);
  if (number < tables_.size() && tables_[number]) {
    const TableShape& old = tables_[number]->shape();
    if (old.width != shape.width || old.pushed != shape.pushed || old.type != shape.type ||
        old.begin != shape.begin || old.end != shape.end)
      throw CommError("worker {} opens table {} with {} values per key and {} keys, unlike the others", from,
                      head.table, head.width, head.keys);
    return;
  }
  auto table = std::make_unique<Table>(shape, options_.make_rule(static_cast<int>(number)));
  if (table->shape().pushed != shape.pushed)
    throw CommError("worker {} opens table {} to push {} values per key, but its rule takes {}", from,
                    head.table, shape.pushed, table->shape().pushed);
  if (number >= tables_.size()) tables_.resize(number + 1);
  tables_[number] = std::move(table);
  opened_.resize(tables_.size());
  opened_[number] = head;
}

Table& Tables::table_of(int from, int64_t table) {
  if (table < 0 || table >= static_cast<int64_t>(tables_.size()) || !tables_[static_cast<size_t>(table)])
    throw CommError("worker {} refers to table {}, which was not opened", from, table);
  return *tables_[static_cast<size_t>(table)];
}

// Empty: the list is named by a hash that is not known here.
std::optional<Tables::Named> Tables::names(int from, int32_t table, int32_t flags, int64_t keys,
                                           uint64_t hash, std::span<const std::byte> payload, size_t each) {
  const bool cached = (flags & kCachedKeys) != 0;
  const KeyedBytes split = split_payload(from, keys, payload, each, flags, table_of(from, table).shape());
  KeptLists& lists = worker(from).lists[static_cast<size_t>(table)];
  Named named{nullptr, split.keys, split.values};
  if (cached) {
    named.kept = lists.find(hash, static_cast<size_t>(keys));
    if (!named.kept) return std::nullopt;
    named.keys = named.kept->keys;
    ++numbers_.cached_lists;
  } else if ((flags & kKeepKeys) != 0) {
    named.kept = lists.keep(hash_of(split.keys), split.keys);
  }
  return named;
}

void Tables::assign(int from, const Message& request, const Messenger::Answer& answer) {
  auto head = request.get_head<AssignTableHead>();
  Table& table = table_of(from, head.table);
  check_assign(from, head, table.shape());
  const KeyedBytes split = split_payload(from, head.keys, request.payload, table.shape().value_bytes(),
                                         /*flags=*/0, table.shape());
  check_finite(from, split.values, table.shape().type);
  if (is_copied())
    options_.log(EntryWriter(Change::kTableAssign).put(head).put_bytes(request.payload).take());
  table.assign(head.array, split.keys, split.values.data());
  version_ = std::max(version_, head.version);
  answer_safely(answer, {});
}

// What the filters of the sender did, undone.
std::span<const std::byte> Tables::restored(int32_t flags, double unit, int64_t keys,
                                            std::span<const std::byte> values, const TableShape& shape) {
  if ((flags & kCompressed) != 0) {
    unpacked_.resize(static_cast<size_t>(keys) * pushed_bytes(flags, shape));
    decompress(values, unpacked_);
    values = unpacked_;
  }
  if ((flags & kFixedPoint) == 0) return values;
  const int bytes = (flags & kInt8) != 0 ? 1 : 2;
  restored_.resize(values.size() / static_cast<size_t>(bytes) * size_of(shape.type));
  from_fixed_point(values, bytes, unit, shape.type, restored_.data());
  return restored_;
}

void Tables::push(int from, const Message& request, const Messenger::Answer& answer) {
  auto head = request.get_head<PushTableHead>();
  check_push(from, head);
  Table& table = table_of(from, head.table);
  const std::optional<Named> named = names(from, head.table, head.flags, head.keys, head.hash,
                                           request.payload, pushed_bytes(head.flags, table.shape()));
  if (!named) return answer({message_with(kPushTable, TableReply{.unknown_keys = 1})});
  const auto values = restored(head.flags, head.unit, head.keys, named->values, table.shape());
  check_finite(from, values, table.shape().type);
  if ((head.flags & kInUpdate) != 0) return push_gradient(from, head, *named, values, answer);
  if (is_new(from, head)) {
    if (is_copied())
      options_.log(EntryWriter(Change::kTableNow)
                       .put(TableChange{.table = head.table,
                                        .keys = head.keys,
                                        .worker = from,
                                        .life = worker(from).life,
                                        .sequence = head.sequence,
                                        .settled = head.settled,
                                        .scale = head.scale})
                       .put_bytes(std::as_bytes(named->keys))
                       .put_bytes(values)
                       .take());
    table.apply({options_.lr, head.scale}, named->keys, values.data(), named->rows());
    worker(from).taken.take(head.sequence);
    square_ = -1;
  }
  answer_pushed(answer);
}

void Tables::answer_safely(const Messenger::Answer& answer, const Reply& reply) const {
  if (!options_.when_safe) return answer(reply);
  options_.when_safe([answer, reply] { answer(reply); });
}

void Tables::answer_pushed(const Messenger::Answer& answer) const {
  answer_safely(answer, {message_with(kPushTable, TableReply{.version = version_})});
}

bool Tables::is_new(int from, const PushTableHead& head) {
  if (head.sequence < 1 || head.settled < 1 || head.settled > head.sequence)
    throw CommError("worker {} pushed number {} after {} were settled; nothing was applied", from,
                    head.sequence, head.settled - 1);
  TakenNumbers& taken = worker(from).taken;
  taken.settle(head.settled);
  if (taken.has(head.sequence)) {
    ++numbers_.duplicates;
    return false;
  }
  if (taken.full())
    throw CommError("worker {} skipped {} pushes before number {}; nothing was applied", from, taken.gaps(),
                    head.sequence);
  return true;
}

void Tables::push_gradient(int from, const PushTableHead& head, const Named& named,
                           std::span<const std::byte> values, const Messenger::Answer& answer) {
  const Worker& sender = worker(from);
  const HeldGradients::Name name{from, sender.life, head.sequence};
  const bool consumed = head.sequence <= sender.applied;
  if (consumed || held_.has(name, head)) {
    ++numbers_.duplicates;
  } else {
    HeldPart part{head.table, {named.keys.begin(), named.keys.end()}, {values.begin(), values.end()}};
    held_.add(name, head, std::move(part));
    if (options_.copies_gradients)
      options_.log(
          EntryWriter(Change::kTableHold)
              .put(TableChange{.table = head.table, .keys = head.keys, .worker = from, .life = sender.life})
              .put(head)
              .put_bytes(std::as_bytes(named.keys))
              .put_bytes(values)
              .take());
  }
  if (consumed || !is_copied() || options_.copies_gradients)
    answer_pushed(answer);
  else
    unanswered_.push_back({name, answer});
  if (held_.find(name) != nullptr) advance();
}

void Tables::pull(int from, const Message& request, const Messenger::Answer& answer) {
  auto head = request.get_head<PullTableHead>();
  Table& table = table_of(from, head.table);
  check_pull(from, head, table.shape());
  const std::optional<Named> named =
      names(from, head.table, head.flags, head.keys, head.hash, request.payload, /*each=*/0);
  if (!named) return answer({message_with(kPullTable, TableReply{.unknown_keys = 1})});
  const bool packs = (head.flags & kCompressed) != 0;
  if (version_ >= head.version) return read_rows(table, named->keys, named->rows(), packs, answer);
  wait(from, head.version, /*snapshot=*/false, answer, [this, &table, list = named->list(), packs, answer] {
    read_rows(table, list->keys, &list->rows, packs, answer);
  });
}

void Tables::fetch(int from, const Message& request, const Messenger::Answer& answer) {
  auto head = request.get_head<FetchTableHead>();
  Table& table = table_of(from, head.table);
  check_fetch(from, head, table.shape());
  const bool snapshot = (head.flags & kFromSnapshot) != 0;
  const bool ready =
      snapshot ? table.has_snapshot() && snapshot_wanted_ == head.version : version_ >= head.version;
  if (ready) return read_range(table, head, answer);
  if (snapshot && version_ > head.version)
    throw CommError("version {} of table {} was not kept", head.version, head.table);
  wait(from, head.version, snapshot, answer,
       [this, &table, head, answer] { read_range(table, head, answer); });
}

void Tables::count_waiting(int from, int64_t time) {
  if (worker(from).waiting >= kMostWaiting)
    throw CommError("worker {} waits for version {} of the tables, which are at {}, with {} requests pending",
                    from, time, version_, kMostWaiting);
  ++worker(from).waiting;
}

void Tables::wait(int from, int64_t version, bool snapshot, const Messenger::Answer& to,
                  std::function<void()> answer) {
  if (ended_ && decided_.empty() && !snapshot) return answer();  // it will not come
  count_waiting(from, version);
  waiting_.push_back({from, version, snapshot, std::move(answer), to});
}

std::shared_ptr<std::vector<std::byte>> Tables::buffer() {
  auto memory = std::make_shared<std::vector<std::byte>>();
  if (!spare_->empty()) {
    *memory = std::move(spare_->back());
    spare_->pop_back();
  }
  return memory;
}

void Tables::send(Message message, std::shared_ptr<std::vector<std::byte>> payload,
                  const Messenger::Answer& answer) {
  Reply reply{std::move(message)};
  reply.message.payload = *payload;
  numbers_.payload_bytes += static_cast<int64_t>(payload->size());
  reply.sent = [payload, spare = spare_] {
    if (spare->size() < kMostSpare) spare->push_back(std::move(*payload));
  };
  answer_safely(answer, reply);
}

void Tables::read_rows(const Table& table, std::span<const Key> keys, std::vector<uint32_t>* rows, bool packs,
                       const Messenger::Answer& answer) {
  auto payload = buffer();
  payload->resize(keys.size() * table.shape().value_bytes());
  table.read(keys, payload->data(), rows);
  TableReply reply{.version = version_, .square = square_};
  if (packs) {
    if (std::vector<std::byte> frame = compress(*payload); !frame.empty()) {
      *payload = std::move(frame);
      reply.compressed = 1;
    }
  }
  send(message_with(kPullTable, reply), std::move(payload), answer);
}

void Tables::read_range(Table& table, const FetchTableHead& head, const Messenger::Answer& answer) {
  auto payload = buffer();
  FetchTableReply reply = table.read_range(head, *payload);
  reply.version = (head.flags & kFromSnapshot) != 0 ? head.version : version_;
  send(message_with(kFetchTable, reply), std::move(payload), answer);
}

}  // namespace yoke::ps::sparse
