// The part of Server that makes copies anew after a loss, while training continues.
//
// If the chain of a home is too short, its last server copies the ranges to the server that follows: one by
// one, a few at a time. Entries that are appended meanwhile are sent there as well; the new server applies
// those of ranges that it has and drops the others, because the copy of their range, which comes later,
// includes them. The end brings what concerns all ranges. Messages arrive in order, so a server that has the
// end has everything before it: it is a full member of the chain from then on. Until then it must not serve,
// and entries are safe without it.
//
// With several replicas a server may be the next one that already got a copy from another: it is asked first.
#include <algorithm>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/fault.h"
#include "yoke/ps/flight.h"
#include "yoke/ps/server.h"

namespace yoke::ps {
namespace {

using comm::Message;
using comm::Messenger;

constexpr size_t kCopiesAhead = 4;  // in flight
constexpr double kCopyAgain = 5;    // seconds until a server that did not take a copy is asked again
constexpr int64_t kMostHeld = 1 << 20;
constexpr int64_t kMostCopyLives = 1 << 20;

// A range, as its copies know it.
struct SlotState {
  int64_t version = 0;
  int64_t steps = 0;
  int64_t updates = 0;
  int64_t shortfall = 0;
  int64_t counted = 0;  // gradients in the sum; 0: there is no sum
  int64_t measure = 0;
  int64_t sum_copied = 0;
  int64_t held = 0;  // gradients
  double square = -1;
};

struct HeldState {
  int64_t from = 0;
  int64_t life = 0;
  PushHead head;
};

}  // namespace

void Server::extend_chains(bool makes_copies) {
  for (auto& share : shares_)
    if (share->complete) extend_chain(*share, makes_copies);
}

void Server::extend_chain(Share& share, bool makes_copies) {
  const int next = succession_.next(share.home, own_index());
  const bool has_it = next == Succession::kNobody || succession_.held_from_start(share.home, next);
  if (share.copying ? share.copying->server == next : share.chain->next() == next) return;
  share.copying.reset();
  if (has_it) return share.chain->set_next(next);
  if (!makes_copies) return share.chain->set_next(Succession::kNobody);
  share.chain->hold_for(next);
  share.copying = Copying{.server = next, .attempt = ++share.attempts};
  send_copy(share, {.what = CopyHead::kAsk}, {}, [this, &share](const CopyReply& reply) {
    if (reply.complete == 0) return begin_copy(share);
    share.copying.reset();
    share.chain->set_next(share.chain->next());
  });
}

// `then` is called unless that server is lost or copying starts anew.
void Server::send_copy(Share& share, CopyHead head, std::vector<std::byte> payload,
                       std::function<void(const CopyReply&)> then) {
  fault::at(fault::Point::kPsCopy);
  head.home = share.home;
  const int peer = options_.workers + share.copying->server;
  auto bytes = std::make_shared<std::vector<std::byte>>(std::move(payload));
  {
    std::lock_guard lock(mutex_);
    numbers_.replicated_bytes += static_cast<int64_t>(bytes->size());
  }
  const Deadline deadline = Deadline::after(options_.timeout);
  auto done = [this, &share, peer, bytes, deadline, attempt = share.copying->attempt, then = std::move(then)](
                  const Message& reply, const std::string& error) {
    if (!error.empty() && messenger_.is_lost(peer)) return;  // extend_chains() chooses another
    const bool current = share.copying && share.copying->attempt == attempt;
    if (!error.empty() && deadline.passed() && !current) return;
    if (!error.empty() && deadline.passed() && is_safe_without_copy(share)) return give_up_copy(share, error);
    if (!error.empty())
      return fail(fmt::format("{} did not take a copy: {}",
                              server_name(peer - options_.workers, options_.ranks), error));
    if (current) then(reply.get_head<CopyReply>());
  };
  messenger_.ask_then(peer, message_with(kCopy, head, *bytes), {}, deadline, done);
}

// Whether the server that gets a copy is known not to have it, and is not waited for: neither while it is
// asked, nor once it has been sent the end.
bool Server::is_safe_without_copy(const Share& share) {
  return share.copying && share.chain->is_filling() && !share.copying->ending;
}

// The target is connected but takes nothing. That these ranges have fewer copies is no reason to end this
// server, which has them.
void Server::give_up_copy(Share& share, const std::string& error) {
  say(
      fmt::format("{} did not take a copy of the parameters of server {} ({}): they have fewer copies. It is "
                  "asked again in {} s",
                  server_name(share.copying->server, options_.ranks), share.home, error, kCopyAgain));
  share.copying.reset();
  share.chain->set_next(Succession::kNobody);
  messenger_.run_later(kCopyAgain, [this, &share] {
    if (share.complete) extend_chain(share, /*makes_copies=*/!ended_);
  });
}

void Server::begin_copy(Share& share) {
  share.chain->fill(share.copying->server);
  const bool tables = !share.tables->empty();
  share.copying->rows.tables = share.tables->count();
  auto then = [this, &share](const CopyReply&) { copy_ranges(share); };
  auto nothing = [](const CopyReply&) {};
  const CopyHead begin{.number = share.chain->last(), .what = CopyHead::kBegin};
  if (!tables) return send_copy(share, begin, {}, then);
  send_copy(share, begin, {}, nothing);
  if (share.copying) send_copy(share, {.what = CopyHead::kTables}, share.tables->save_state(), then);
}

// Answers may come at once, and end this copy.
void Server::copy_ranges(Share& share) {
  const int64_t attempt = share.copying->attempt;
  auto goes_on = [&] { return share.copying && share.copying->attempt == attempt && !share.copying->ending; };
  bool more = true;
  while (more && goes_on() && share.copying->in_flight < kCopiesAhead) more = copy_next(share);
  if (goes_on() && !more && share.copying->in_flight == 0) end_copy(share);
}

// The next range, or rows of tables. False: nothing is left.
bool Server::copy_next(Share& share) {
  Copying& copying = *share.copying;
  CopyHead head{.what = CopyHead::kRange};
  std::vector<std::byte> state;
  if (copying.next < share.slots.size()) {
    const Slot& slot = *share.slots[copying.next++];
    head.range = static_cast<int64_t>(slot.store.number());
    state = save_slot(slot);
  } else {
    head.what = CopyHead::kRows;
    state = share.tables->save_rows(copying.rows);
    if (state.empty()) return false;
  }
  ++copying.in_flight;
  send_copy(share, head, std::move(state), [this, &share](const CopyReply&) {
    --share.copying->in_flight;
    copy_ranges(share);
  });
  return true;
}

void Server::end_copy(Share& share) {
  share.copying->ending = true;
  const int server = share.copying->server;
  send_copy(share, {.what = CopyHead::kEnd}, save_share(share), [this, &share, server](const CopyReply&) {
    share.copying.reset();
    if (server == succession_.target(share.home)) return;  // who is to serve them (server_move.cpp)
    say(fmt::format("{} has a copy of the parameters of server {} now: {} of {} copies",
                    server_name(server, options_.ranks), share.home, succession_.copies(share.home),
                    options_.replicas));
  });
  share.chain->filled();
}

// What is not in the log yet is left out: its senders have no answer and will send it again.
std::vector<std::byte> Server::save_slot(const Slot& slot) const {
  const RangeStore& store = slot.store;
  const bool has_sum = store.counted() > 0 && (copies_gradients_ || slot.sum_copied);
  Saver saver;
  saver(SlotState{store.version(), store.steps(), slot.updates, slot.shortfall, has_sum ? store.counted() : 0,
                  slot.measure ? 1 : 0, slot.sum_copied ? 1 : 0,
                  copies_gradients_ ? static_cast<int64_t>(slot.held.size()) : 0, slot.square});
  std::vector<RangeStore::Early> early = early_of(slot);
  for (const Unanswered& push : slot.unanswered) early.push_back({push.from, push.life, push.sequence});
  for (const std::vector<int64_t>& marks : store.marks(early)) saver(marks);
  saver.put_bytes(*store.values());
  for (std::span<std::byte> array : store.state()) saver.put_bytes(array);
  if (has_sum) saver.put_bytes(store.sum());
  for (size_t i = 0; copies_gradients_ && i < slot.held.size(); ++i) {
    saver(HeldState{slot.held[i].from, slot.held[i].life, slot.held[i].head});
    saver.put_bytes(slot.held[i].payload);
  }
  return saver.take();
}

void Server::load_slot(Slot& slot, std::span<const std::byte> bytes) {
  Loader loader(bytes);
  const size_t size = slot.store.values()->size();
  SlotState state;
  loader(state);
  if (state.updates < 0 || state.held < 0 || state.held > kMostHeld)
    throw CommError("a copy of range {} with {} updates and {} gradients", slot.store.number(), state.updates,
                    state.held);
  std::vector<std::vector<int64_t>> marks(static_cast<size_t>(options_.workers));
  for (std::vector<int64_t>& own : marks) loader(own);
  slot.store.set_marks(std::move(marks));
  for (size_t array = 0; array <= slot.store.state_arrays(); ++array)
    slot.store.assign(static_cast<int64_t>(array), loader.get_bytes(size), state.version, state.steps);
  if (state.counted > 0) slot.store.set_sum(loader.get_bytes(size), state.counted);
  for (int64_t i = 0; i < state.held; ++i) {
    HeldState held;
    loader(held);
    if (held.from < 0 || held.from >= options_.workers || held.life < 0 || held.life > kMostCopyLives)
      throw CommError("a copy of range {} with a gradient of worker {}", slot.store.number(), held.from);
    std::span<const std::byte> gradient = loader.get_bytes(size);
    early_bytes_ += gradient.size();
    slot.held.push_back(
        {static_cast<int>(held.from), held.life, held.head, {gradient.begin(), gradient.end()}, {}});
  }
  if (!loader.at_end()) throw CommError("a copy of range {} that is too long", slot.store.number());
  slot.updates = state.updates;
  slot.shortfall = state.shortfall;
  slot.measure = state.measure != 0;
  slot.sum_copied = state.sum_copied != 0;
  slot.square = state.square;
  slot.entry = slot.share->chain->last();
  recall(slot.updates + 1);
  slot.filled = true;
  for (Decided& update : decided_)
    if (update.head.number > slot.updates) ++update.ranges_left;
}

std::vector<std::byte> Server::save_share(Share& share) {
  Saver saver;
  for (TakenNumbers& taken : share.taken) taken.exchange(saver);
  if (share.home == 0) saver.put_bytes(copied_->save());
  return saver.take();
}

void Server::load_share(Share& share, std::span<const std::byte> state) {
  Loader loader(state);
  for (TakenNumbers& taken : share.taken) taken.exchange(loader);
  if (share.home != 0) return;
  auto copied = std::make_unique<CopiedScheduler>(options_.scheduler, scheduler_wire(), /*active=*/false);
  copied->load(loader.rest());
  copied_ = std::move(copied);
}

void Server::take_copy(int from, const Message& request, const Messenger::Answer& answer) {
  auto head = request.get_head<CopyHead>();
  if (head.home < 0 || head.home >= options_.servers)
    throw CommError("rank {} sent a copy of the ranges of server {}: there are {}", from, head.home,
                    options_.servers);
  const auto home = static_cast<int>(head.home);
  Share* share = share_of(home);
  auto reply = [&](bool complete) { answer({message_with(kCopy, CopyReply{complete ? 1 : 0})}); };
  if (head.what == CopyHead::kAsk) return reply(share != nullptr && share->complete);
  if (!opened_) throw NotServedYet();
  if (share != nullptr && share->serves)
    throw CommError("rank {} claims the ranges of server {}, which server {} serves: two servers claim them",
                    from, head.home, own_index());
  if (head.what == CopyHead::kBegin) {
    if (head.number < 0) throw CommError("rank {} sent a copy after entry {}", from, head.number);
    begin_filling(home, head.number);
    return reply(false);
  }
  if (share == nullptr || share->complete)
    throw CommError("rank {} sent a part of a copy of the ranges of server {} that it has not begun", from,
                    head.home);
  fault::at(fault::Point::kPsTakeCopy);
  if (head.what == CopyHead::kRange) {
    Slot& slot = copy_of(*share, head.range);
    if (slot.filled) throw CommError("rank {} sent a copy of range {} twice", from, head.range);
    load_slot(slot, request.payload);
  } else if (head.what == CopyHead::kTables) {
    load_tables(*share, request.payload);
  } else if (head.what == CopyHead::kRows) {
    share->tables->load_rows(request.payload);
  } else {
    if (!share->tables->is_filled()) throw CommError("rank {} ended a copy without all rows of tables", from);
    for (const auto& slot : share->slots)
      if (!slot->filled) throw CommError("rank {} ended a copy without range {}", from, slot->store.number());
    load_share(*share, request.payload);
    share->complete = true;
    extend_chain(*share, /*makes_copies=*/!ended_);
    if (is_elastic()) tell_filled(*share);
  }
  reply(share->complete);
}

// The copy hears of the updates that it has not applied, and of the workers that are gone.
void Server::load_tables(Share& share, std::span<const std::byte> state) {
  share.tables->load_state(state);
  recall(share.tables->updates() + 1);
  for (const Decided& update : decided_) share.tables->update_decided(update.head, update.from);
  for (int worker = 0; worker < options_.workers; ++worker)
    if (lost_[static_cast<size_t>(worker)]) share.tables->worker_lost(worker);
  share.tables->keep(snapshot_wanted_);
  if (ended_) share.tables->ended();
}

// What this server has of these ranges is out of date.
void Server::begin_filling(int home, int64_t number) {
  Share* known = share_of(home);
  Share& share = known != nullptr ? *known : add_share(home, /*serves=*/false);
  share.complete = false;
  forget_share_in_updates(share);
  share.slots.clear();
  share.taken.assign(static_cast<size_t>(options_.workers), {});
  make_tables(share);
  share.chain->start_after(number);
  if (home == 0) copied_.reset();
  for (size_t i = 0; i < by_range_.size(); ++i) {
    const Range& range = sharding_.ranges()[i];
    if (range.server != home) continue;
    share.slots.push_back(make_slot(i, range, opened_->type, share));
    share.slots.back()->filled = false;
    by_range_[i] = share.slots.back().get();
  }
  forget_done();
}

// Whether an entry concerns something that is yet to come with the copy.
bool Server::concerns_missing(Share& share, std::span<const std::byte> bytes) {
  EntryReader entry(bytes);
  switch (entry.get<Change>()) {
    case Change::kKeys:
      return false;  // apply_keys() knows
    case Change::kTableOpen:
    case Change::kTableAssign:
    case Change::kTableNow:
    case Change::kTableHold:
    case Change::kTablePart:
    case Change::kTableUpdate:
    case Change::kTableRound:
      return false;  // tables know which of their rows have arrived
    case Change::kDecide:
    case Change::kClipped:
      return true;  // of the scheduler, which comes with the end
    case Change::kHold:
      return !copy_of(share, entry.get<HoldChange>().head.range).filled;
    default:
      return !copy_of(share, entry.get<int64_t>()).filled;  // all begin with their range
  }
}

}  // namespace yoke::ps
