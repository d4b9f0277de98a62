// The part of Server that applies updates and answers pulls.
//
// A range applies an update once it holds as many gradients as the update consumes. Under rules whose updates
// consume gradients of their own version, no gradient can be early: a worker that pushes for the next update
// has read the range after this one. Under the other rules ranges are independent: a gradient that overtakes
// another takes its place, and nobody waits for a slow sender.
//
// Floating-point sums depend on the order of addition. If an update consumes one gradient of each worker, all
// of one version, they are added in worker order, so that runs are bit-identical. Early ones are held, and
// their sender waits for the reply: it has at most kPushesAhead ranges in flight per server. It is a
// gradient's turn once those of all preceding workers were added: of the workers that the update names once
// it is decided, until then of all that have not left.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/fault.h"
#include "yoke/ps/server.h"

namespace yoke::ps {
namespace {

using comm::Message;
using comm::Messenger;
using comm::Reply;

// Updates that a worker may know of before this server does.
constexpr int64_t kMostAhead = 256;
// Updates that are remembered after all ranges of this server have applied them: no range is further behind.
constexpr size_t kMostPast = 2 * kMostAhead;
constexpr double kTellSeconds = 30;
constexpr size_t kMostKeysBytes = size_t{4} << 30;  // limit of a reply

}  // namespace

void Server::tell(int peer, const Message& message) {
  try {
    messenger_.tell(peer, message, Deadline::after(kTellSeconds));
  } catch (const CommError&) {
    // The peer is lost; peer_lost() will handle it.
  }
}

void Server::tell_servers(const Message& message) {
  for (int server = 0; server < options_.servers; ++server)
    if (server != own_index() && !succession_.is_lost(server)) tell(options_.workers + server, message);
}

const Server::Decided* Server::decided(int64_t number) const {
  if (decided_.empty() || number < decided_.front().head.number || number > decided_.back().head.number)
    return nullptr;
  return &decided_[static_cast<size_t>(number - decided_.front().head.number)];
}

Server::Decided* Server::decided(int64_t number) {
  return const_cast<Decided*>(std::as_const(*this).decided(number));
}

void Server::update_decided(const UpdateHead& head, std::vector<Contributor> from) {
  if (is_copied() && head.number <= updates_heard_) return;  // told again by a new scheduler
  if (head.number != updates_heard_ + 1)
    throw CommError("invalid message from the scheduler: update {} after {}", head.number, updates_heard_);
  if (head.version < 0 || head.version > kMostVersion || !std::isfinite(head.weight) ||
      !std::isfinite(head.lr) || !(head.clip_norm >= 0))
    throw CommError(
        "invalid update from the scheduler: version {} with weight {}, step {}, norm {} is out of range",
        head.version, head.weight, head.lr, head.clip_norm);
  for (const Contributor& one : from) {
    if (one.worker < 0 || one.worker >= options_.workers || one.life < 0 || one.minibatch < 0)
      throw CommError("invalid update from the scheduler: worker {} in life {} with minibatch {}", one.worker,
                      one.life, one.minibatch);
  }
  ++updates_heard_;
  for (const Contributor& one : from) {
    auto worker = static_cast<size_t>(one.worker);
    bool past = one.life < lives_[worker];
    if (!past) last_named_[worker] = one;
    if (past || lost_[worker]) write_off(one);
  }
  for (auto& share : shares_) share->tables->update_decided(head, from);
  decided_.push_back({.head = head,
                      .from = std::move(from),
                      .ranges_left = ranges_before(head.number),
                      .summed = std::vector<size_t>(shares_.size(), 0),
                      .told = std::vector<bool>(shares_.size(), false),
                      .since = now_seconds()});
  forget_done();
  for (auto& slot : slots_) advance(*slot);
  tell_square();
}

// Ranges that have not applied this update; a copy may have it before this server hears of it.
size_t Server::ranges_before(int64_t update) const {
  size_t count = 0;
  for (const auto& share : shares_)
    count +=
        static_cast<size_t>(std::count_if(share->slots.begin(), share->slots.end(), [&](const auto& slot) {
          return slot->filled && slot->updates < update;
        }));
  return count;
}

void Server::forget_done() {
  while (!decided_.empty() && decided_.front().is_done()) {
    if (is_copied()) past_.push_back(std::move(decided_.front()));
    decided_.pop_front();
  }
  while (past_.size() > kMostPast) past_.pop_front();
}

// A copy that has just arrived needs this update and those after it.
void Server::recall(int64_t update) {
  auto first = [&] { return decided_.empty() ? updates_heard_ + 1 : decided_.front().head.number; };
  while (!past_.empty() && first() > update) {
    decided_.push_front(std::move(past_.back()));
    past_.pop_back();
    decided_.front().summed.resize(shares_.size(), 0);
    decided_.front().told.resize(shares_.size(), false);
  }
  if (first() > update && update <= updates_heard_)
    throw CommError("server {} does not know update {} any more, which a copy has not applied", own_index(),
                    update);
}

// An accepted gradient of a lost worker that has not arrived never will: an update consumes one less. Which
// update does not matter, because another gradient may already have taken its place.
void Server::write_off(const Contributor& gradient) {
  for (Slot* slot : slots_) write_off(*slot, gradient);
}

void Server::write_off(Slot& slot, const Contributor& gradient) {
  if (slot.store.write_off(static_cast<int>(gradient.worker), gradient.life, gradient.minibatch))
    ++slot.shortfall;
}

int64_t Server::needed(const Slot& slot, const Decided& update) {
  return std::max<int64_t>(0, static_cast<int64_t>(update.from.size()) - slot.shortfall);
}

// Bounds the gradients a range holds per worker. A gradient is ahead if it is for a later update than the
// range's next. Before a worker pushes again, it pulls what the scheduler had decided when it accepted this
// gradient, so the range has caught up: at most `pushes_between_pulls` of each of P workers are ahead. A
// gradient that is not ahead is held if one that was took its place, or if the part of a lost worker was
// written off before its turn: at most once for each of those.
void Server::hold(Slot& slot, int from, const PushHead& head, std::span<const std::byte> payload,
                  Messenger::Answer answer) {
  int64_t life = lives_[static_cast<size_t>(from)];
  auto own = std::count_if(slot.held.begin(), slot.held.end(),
                           [&](const HeldPush& push) { return push.from == from && push.life == life; });
  if (own >= 2 * options_.pushes_between_pulls * options_.workers)
    throw CommError(
        "rank {} has pushed {} gradients ahead of update {} of range {}, and pushes another for update {}: "
        "it must pull first. Nothing was applied",
        from, own, slot.updates + 1, head.range, head.update);
  slot.store.note(from, head.sequence);
  early_bytes_ += payload.size();
  numbers_.most_early_bytes = std::max(numbers_.most_early_bytes, early_bytes_);
  if (copies_gradients_)
    log_change(slot, EntryWriter(Change::kHold).put(HoldChange{from, life, head}).put_bytes(payload).take());
  const bool waits = !copies_gradients_ && (is_copied() || (head.flags & kInOrderFlag) != 0);
  if (!waits) answer_when_safe(slot, answer, {});
  slot.held.push_back(
      {from, life, head, {payload.begin(), payload.end()}, waits ? std::move(answer) : Messenger::Answer()});
}

// A gradient is in the accumulator. With copies, its sender may forget it once a copy has it: with the sum of
// its update, or where it continues before that is complete, by itself.
void Server::acknowledge(Slot& slot, int from, int64_t life, const PushHead& head,
                         const Messenger::Answer& answer) {
  if (!answer) return;
  if (!is_copied() || copies_gradients_) return answer_when_safe(slot, answer, {});
  slot.unanswered.push_back({from, life, head.sequence, answer});
}

// No copy has to be asked where there is none.
void Server::answer_when_safe(Slot& slot, const Messenger::Answer& answer, const Reply& reply) {
  if (!is_copied() || slot.share->chain->is_safe(slot.entry)) return answer(reply);
  slot.share->chain->when_safe(slot.entry, [answer, reply] { answer(reply); });
}

// A resend of a held push: reply to the new request instead of the old one.
bool Server::answers_again(Slot& slot, int from, const PushHead& head, const Messenger::Answer& answer) {
  for (HeldPush& push : slot.held) {
    if (push.from != from || push.head.sequence != head.sequence || !push.answer) continue;
    push.answer = answer;
    return true;
  }
  for (Unanswered& push : slot.unanswered) {
    if (push.from != from || push.sequence != head.sequence) continue;
    push.answer = answer;
    return true;
  }
  return false;
}

// It is not added.
void Server::discard(HeldPush& push) {
  early_bytes_ -= push.payload.size();
  if (push.answer) push.answer({});
}

bool Server::holds(const Slot& slot, int from, int64_t life) {
  return std::any_of(slot.held.begin(), slot.held.end(), [&](const HeldPush& push) {
    return push.from == from && push.life == life && push.in_order();
  });
}

bool Server::is_turn(const Slot& slot, int from, const PushHead& head) const {
  const int64_t next = slot.updates + 1;
  if ((head.flags & kInOrderFlag) == 0 || head.update < next) return true;
  if (head.update > next) return false;
  if (const Decided* update = decided(next)) {
    return std::none_of(update->from.begin(), update->from.end(), [&](const Contributor& one) {
      auto worker = static_cast<int>(one.worker);
      return worker < from &&
             (holds(slot, worker, one.life) || !slot.store.is_over(worker, one.life, one.minibatch));
    });
  }
  for (int worker = 0; worker < from; ++worker) {
    auto index = static_cast<size_t>(worker);
    bool added = std::find(slot.added.begin(), slot.added.end(), worker) != slot.added.end();
    bool coming = !lost_[index] && !left_[index];
    if (!added && (coming || holds(slot, worker, lives_[index]))) return false;
  }
  return true;
}

// The scheduler has ended: gradients of undecided updates are discarded.
void Server::updates_ended() {
  ended_ = true;
  clock_.stop(now_seconds());
  for (auto& share : shares_) share->tables->ended();
  for (auto& slot : slots_) {
    for (HeldPush& push : slot->held)
      if (push.head.update > updates_heard_) discard(push);
    std::erase_if(slot->held, [&](const HeldPush& push) { return push.head.update > updates_heard_; });
    if (slot->updates < updates_heard_) continue;
    for (const Unanswered& push : std::exchange(slot->unanswered, {})) push.answer({});
  }
}

void Server::take_push(Slot& slot, int from, const PushHead& head, std::span<const std::byte> payload,
                       const Messenger::Answer& answer) {
  RangeStore& store = slot.store;
  int64_t next = slot.updates + 1;
  if (head.count != store.range().count)
    throw CommError("worker {} pushed {} of {} elements of range {}; nothing was applied", from, head.count,
                    store.range().count, head.range);
  bool complete = slot.summed.has_value();
  if (head.update > next + kMostAhead || head.update < 1 || (strict_ && (head.update != next || complete)))
    throw CommError("worker {} pushed for update {} of range {}, which has {}; nothing was applied", from,
                    head.update, head.range, slot.updates);
  Decided* update = decided(next);
  if (ended_ && head.update > updates_heard_) return answer({});
  // The decision is still in flight, and only pushes for exactly this update surely belong to it; or the
  // update is complete and waits to be clipped.
  if (complete || (update == nullptr && head.update != next) || !is_turn(slot, from, head))
    return hold(slot, from, head, payload, answer);
  store.note(from, head.sequence);
  slot.measure |= (head.flags & kMeasureFlag) != 0;
  const bool as_it_is =
      update != nullptr && update->head.clip_norm <= 0 && update->head.skips == 0 && !slot.measure;
  if (as_it_is && store.counted() == 0 && needed(slot, *update) == 1) {
    const double weight = update->head.weight * static_cast<double>(update->from.size());
    const UpdateHead told = update->head;
    store.update_with(payload, head.scale, told.lr, weight, told.version);
    slot.square = -1;
    slot.shortfall -= static_cast<int64_t>(update->from.size()) - 1;
    log_update(slot, told.version, told.lr, weight * head.scale, ApplyChange::kHere, payload);
    applied(slot);
    answer_when_safe(slot, answer, {});
  } else {
    add(slot, from, lives_[static_cast<size_t>(from)], head, payload, /*held=*/false);
    acknowledge(slot, from, lives_[static_cast<size_t>(from)], head, answer);
  }
  advance(slot);
  tell_square();
}

void Server::add(Slot& slot, int from, int64_t life, const PushHead& head,
                 std::span<const std::byte> gradient, bool held) {
  slot.store.add(gradient, head.scale);
  slot.measure |= (head.flags & kMeasureFlag) != 0;
  slot.added.push_back(from);
  if (!copies_gradients_) return;
  EntryWriter entry(Change::kAdd);
  entry.put(AddChange{head.range, from, life, head.sequence, head.scale, held ? 1 : 0});
  log_change(slot, entry.put_bytes(held ? std::span<const std::byte>() : gradient).take());
}

void Server::advance(Slot& slot) {
  RangeStore& store = slot.store;
  for (;;) {
    int64_t next = slot.updates + 1;
    Decided* update = decided(next);
    if (!slot.held.empty() && !slot.summed) add_held(slot);
    if (update == nullptr || store.counted() < needed(slot, *update) || !apply(slot, *update)) return;
  }
}

// Adds held gradients for the slot's next update whose turn it is; adding one may make it the turn of
// another.
void Server::add_held(Slot& slot) {
  RangeStore& store = slot.store;
  const int64_t next = slot.updates + 1;
  const Decided* update = decided(next);
  auto fits = [&](const HeldPush& push) {
    bool wanted = update != nullptr ? store.counted() < needed(slot, *update) : push.head.update == next;
    return wanted && is_turn(slot, push.from, push.head);
  };
  for (auto push = slot.held.begin(); push != slot.held.end();) {
    if (!fits(*push)) {
      ++push;
      continue;
    }
    HeldPush taken = std::move(*push);
    slot.held.erase(push);
    early_bytes_ -= taken.payload.size();
    add(slot, taken.from, taken.life, taken.head, taken.payload, /*held=*/true);
    acknowledge(slot, taken.from, taken.life, taken.head, taken.answer);
    push = slot.held.begin();
  }
}

// All gradients of the slot's next update have arrived. False: it waits to be clipped.
bool Server::apply(Slot& slot, Decided& update) {
  RangeStore& store = slot.store;
  // Missing gradients of lost workers do not reduce the step size.
  double share =
      static_cast<double>(update.from.size()) / static_cast<double>(std::max<int64_t>(1, store.counted()));
  int64_t missing = static_cast<int64_t>(update.from.size()) - store.counted();
  double weight = update.head.weight * share;
  bool clips = update.head.clip_norm > 0;
  if (clips && !slot.summed) {
    slot.summed = store.square(weight);
    ++update.summed[slot.share->index];
    if (!update.factor && !slot.sum_copied) log_sum(slot);
  }
  if (clips && !update.factor) return false;
  std::optional<double> square = std::exchange(slot.summed, std::nullopt);
  const bool skips = update.head.skips != 0;
  if (std::exchange(slot.measure, false) && !square && !skips) square = store.square(weight);
  double factor = clips ? *update.factor : skips || (square && !std::isfinite(*square)) ? 0 : 1;
  fault::at(fault::Point::kPsServerUpdate);
  const bool moves = factor > 0 && store.counted() > 0;
  const bool is_there = copies_gradients_ || std::exchange(slot.sum_copied, false);
  if (factor > 0)
    store.update(update.head.lr, weight * factor, update.head.version);
  else
    store.pass(update.head.version);
  slot.square = square.value_or(-1);
  slot.shortfall -= missing;
  log_update(slot, update.head.version, update.head.lr, weight * factor,
             !moves     ? ApplyChange::kNone
             : is_there ? ApplyChange::kThere
                        : ApplyChange::kHere,
             store.sum());
  applied(slot);
  return true;
}

// The slot has applied its next update.
void Server::applied(Slot& slot) {
  ++slot.updates;
  slot.added.clear();
  if (Decided* update = decided(slot.updates)) --update->ranges_left;
  forget_done();
  after_change(slot);
}

// Answers requests that waited for this version.
void Server::after_change(Slot& slot) {
  RangeStore& store = slot.store;
  if (store.version() == snapshot_wanted_) {
    store.take_snapshot();
    for (const WaitingFetch& fetch : slot.fetches) answer_fetch(slot, fetch);
    slot.fetches.clear();
  }
  if (slot.pulls.empty()) return;
  auto ready = std::stable_partition(slot.pulls.begin(), slot.pulls.end(), [&](const WaitingPull& pull) {
    return pull.head.version > store.version();
  });
  for (auto pull = ready; pull != slot.pulls.end(); ++pull) answer_pull(slot, pull->head, pull->answer);
  slot.pulls.erase(ready, slot.pulls.end());
}

void Server::answer_pull(Slot& slot, const PullHead& head, const Messenger::Answer& answer) {
  Reply reply;
  reply.message.kind = kPull;
  reply.message.set_head(PullReply{slot.store.version(), slot.square});
  reply.message.payload = slot.store.part(head.begin, head.count);
  reply.sent = [values = slot.store.values()] {};  // keeps the values unchanged until they are sent
  numbers_.payload_bytes += static_cast<int64_t>(reply.message.payload.size());
  answer_when_safe(slot, answer, reply);
}

// Every range is at this version or will pass through it: no later update has been decided yet.
void Server::keep(int64_t version) {
  snapshot_wanted_ = version;
  for (auto& share : shares_) share->tables->keep(version);
  for (auto& slot : slots_) {
    slot->store.drop_snapshot();
    if (slot->store.version() != version) continue;
    slot->store.take_snapshot();
    for (const WaitingFetch& fetch : slot->fetches) answer_fetch(*slot, fetch);
    slot->fetches.clear();
  }
}

void Server::answer_fetch(Slot& slot, const WaitingFetch& fetch) {
  const RangeStore::Snapshot& snapshot = *slot.store.snapshot();
  auto array = static_cast<size_t>(fetch.head.array);
  RangeStore::Buffer data = array == 0 ? snapshot.values : snapshot.state[array - 1];
  Reply reply;
  reply.message.kind = kFetch;
  reply.message.set_head(FetchReply{snapshot.steps});
  reply.message.payload = *data;
  reply.sent = [data] {};
  answer_when_safe(slot, fetch.answer, reply);
}

// Whether the payload has the size for the keys of this head, with `each` bytes per key.
bool Server::has_keys(const KeysHead& head, size_t bytes, size_t each) const {
  return head.keys >= 1 && head.width == opened_->align && bytes % each == 0 &&
         bytes / each == static_cast<size_t>(head.keys);
}

void Server::push_keys(int from, const Message& request, const Messenger::Answer& answer) {
  auto head = request.get_head<KeysHead>();
  if (!opened_) throw CommError("worker {} uses keys before it has opened a table", from);
  size_t element = size_of(opened_->type);
  size_t value_bytes = static_cast<size_t>(opened_->align) * element;
  if (!has_keys(head, request.payload.size(), sizeof(int64_t) + value_bytes))
    throw CommError("worker {} pushed {} bytes for {} keys of {} values; nothing was applied", from,
                    request.payload.size(), head.keys, head.width);
  size_t keys_bytes = static_cast<size_t>(head.keys) * sizeof(int64_t);
  std::vector<int64_t> keys(static_cast<size_t>(head.keys));
  std::memcpy(keys.data(), request.payload.data(), keys_bytes);
  std::span<const std::byte> values = request.payload.subspan(keys_bytes);
  check_finite(from, values);
  Share& share = share_for_keys(from, keys, head.width);
  numbers_.payload_bytes += static_cast<int64_t>(values.size());
  numbers_.pushed_bytes += static_cast<int64_t>(values.size());
  if (is_new_push(share, from, head.sequence, head.settled)) {
    apply_keys(share, keys, values);
    share.taken[static_cast<size_t>(from)].take(head.sequence);
    if (is_copied()) {
      KeysChange change{from, head.keys, head.sequence, head.settled};
      log_change(share, EntryWriter(Change::kKeys).put(change).put_bytes(request.payload).take());
    }
  }
  if (!is_copied()) return answer({});
  share.chain->when_safe(share.chain->last(), [answer] { answer({}); });
}

// The keys of a request belong to the ranges of one server.
Server::Share& Server::share_for_keys(int from, std::span<const int64_t> keys, int64_t width) {
  Share* share = nullptr;
  for (int64_t key : keys) {
    if (key < 0 || key >= sharding_.elements() / width)
      throw CommError("worker {} uses key {}, but there are {}; nothing was applied", from, key,
                      sharding_.elements() / width);
    Slot& slot = slot_of(from, static_cast<int64_t>(sharding_.range_at(key * width)));
    if (share != nullptr && slot.share != share)
      throw CommError("worker {} uses keys of servers {} and {} together; nothing was applied", from,
                      share->home, slot.share->home);
    share = slot.share;
  }
  return *share;
}

void Server::apply_keys(Share& share, std::span<const int64_t> keys, std::span<const std::byte> values) {
  const int64_t width = opened_->align;
  const size_t each = static_cast<size_t>(width) * size_of(opened_->type);
  for (size_t i = 0; i < keys.size(); ++i) {
    Slot& slot = copy_of(share, static_cast<int64_t>(sharding_.range_at(keys[i] * width)));
    if (!slot.filled) continue;  // its copy, which is yet to come, has them
    slot.store.apply_now(keys[i] * width, values.subspan(i * each, each), 1);
  }
}

void Server::pull_keys(int from, const Message& request, const Messenger::Answer& answer) {
  auto head = request.get_head<KeysHead>();
  if (!opened_) throw CommError("worker {} uses keys before it has opened a table", from);
  size_t value_bytes = static_cast<size_t>(opened_->align) * size_of(opened_->type);
  if (!has_keys(head, request.payload.size(), sizeof(int64_t)) ||
      static_cast<size_t>(head.keys) > kMostKeysBytes / value_bytes)
    throw CommError("worker {} requested {} keys of {} values with {} bytes", from, head.keys, head.width,
                    request.payload.size());
  std::vector<int64_t> keys(static_cast<size_t>(head.keys));
  std::memcpy(keys.data(), request.payload.data(), request.payload.size());
  Share& share = share_for_keys(from, keys, head.width);
  auto values = std::make_shared<std::vector<std::byte>>();
  for (int64_t key : keys) {
    const Slot& slot = *by_range_[sharding_.range_at(key * head.width)];
    std::span<const std::byte> part = slot.store.part(key * head.width, head.width);
    values->insert(values->end(), part.begin(), part.end());
  }
  YOKE_CHECK(values->size() == static_cast<size_t>(head.keys) * value_bytes, "keys were lost");
  Reply reply;
  reply.message.kind = kPullKeys;
  reply.message.payload = *values;
  reply.sent = [values] {};
  numbers_.payload_bytes += static_cast<int64_t>(values->size());
  if (!is_copied()) return answer(reply);
  share.chain->when_safe(share.chain->last(), [answer, reply] { answer(reply); });
}

}  // namespace yoke::ps
