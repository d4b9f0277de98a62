// The part of Server that keeps copies of ranges on other servers.
//
// A copy is a Slot that does not serve: it applies what the entries of its home's chain say, to its own
// values and optimizer state, which are therefore identical bit by bit.
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

constexpr int64_t kMostRestarts = 1 << 20;

void put_marks(EntryWriter& entry, const std::vector<std::vector<int64_t>>& marks) {
  entry.put(static_cast<int64_t>(marks.size()));
  for (const std::vector<int64_t>& own : marks) entry.put_list(own);
}

std::vector<std::vector<int64_t>> get_marks(EntryReader& entry) {
  std::vector<std::vector<int64_t>> marks;
  for (auto left = entry.get<int64_t>(); left > 0; --left) marks.push_back(entry.get_list());
  return marks;
}

}  // namespace

// The own home, and others that it serves or of which it holds copies from the start.
void Server::make_shares() {
  for (int back = 0; back < options_.servers; ++back) {
    const int home = (own_index() - back + options_.servers) % options_.servers;
    if (!succession_.held_from_start(home, own_index())) continue;
    Share& share = add_share(home, succession_.owner(home) == own_index());
    share.chain->set_next(succession_.next(share.home, own_index()));
  }
}

Server::Share& Server::add_share(int home, bool serves) {
  auto share = std::make_unique<Share>();
  share->home = home;
  share->index = shares_.size();
  share->serves = serves;
  share->taken.resize(static_cast<size_t>(options_.workers));
  auto send = [this, home](int server, int64_t number, const Chain::Bytes& entry, Chain::Task acknowledged) {
    send_entry(server, {home, number}, entry, std::move(acknowledged));
  };
  share->chain = std::make_unique<Chain>(send, Succession::kNobody);
  make_tables(*share);
  shares_.push_back(std::move(share));
  return *shares_.back();
}

void Server::make_tables(Share& share) {
  sparse::TablesOptions options{options_.workers, options_.servers, share.home, options_.make_rule,
                                options_.rule_lr};
  options.serves = share.serves;
  if (is_copied()) {
    options.copies_gradients = copies_gradients_;
    options.log = [this, &share](std::vector<std::byte> entry) { log_change(share, std::move(entry)); };
    options.when_safe = [&share](std::function<void()> task) {
      share.chain->when_safe(share.chain->last(), std::move(task));
    };
  }
  share.tables = std::make_unique<sparse::Tables>(std::move(options));
  for (int worker = 0; worker < options_.workers; ++worker)
    if (is_late(worker) && lost_[static_cast<size_t>(worker)]) share.tables->worker_lost(worker);
}

sparse::Tables& Server::tables_for(int from, const Message& request) {
  const int64_t home = sparse::Tables::home_of(request);
  const bool exists = home >= 0 && home < options_.servers;
  if (!exists || (!is_copied() && home != own_index()))
    throw CommError("worker {} sent a message about the keys of server {} to server {}", from, home,
                    own_index());
  check_is_left(static_cast<int>(home));
  if (is_elastic()) check_is_here(static_cast<int>(home));
  Share* share = share_of(static_cast<int>(home));
  if (share == nullptr || !share->serves) throw NotServedYet{};
  return *share->tables;
}

Server::Share* Server::share_of(int home) {
  auto found =
      std::find_if(shares_.begin(), shares_.end(), [&](const auto& share) { return share->home == home; });
  return found == shares_.end() ? nullptr : found->get();
}

void Server::send_entry(int server, const EntryHead& head, const Chain::Bytes& entry,
                        Chain::Task acknowledged) {
  fault::at(fault::Point::kPsReplicate);
  {
    std::lock_guard lock(mutex_);  // as in server_gone()
    numbers_.replicated_bytes += static_cast<int64_t>(entry->size());
  }
  const int peer = options_.workers + server;
  const Deadline deadline = Deadline::after(options_.timeout);
  auto done = [this, server, peer, entry, deadline, home = static_cast<int>(head.home),
               acknowledged = std::move(acknowledged)](const Message&, const std::string& error) {
    if (!error.empty()) {
      // Whoever gets a copy is not waited for (server_copies.cpp).
      const Share* share = share_of(home);
      const bool awaited = share == nullptr || share->chain->next() == server;
      if (!messenger_.is_lost(peer) && (awaited || !deadline.passed()))
        fail(fmt::format("{} did not take a change: {}", server_name(peer - options_.workers, options_.ranks),
                         error));
      return;  // a lost one is replaced in server_gone()
    }
    fault::at(fault::Point::kPsReplicated);
    acknowledged();
  };
  messenger_.ask_then(peer, message_with(kEntry, head, *entry), {}, deadline, done);
}

void Server::fail(const std::string& error) {
  std::lock_guard lock(mutex_);
  if (error_.empty()) lost_before_ = losses_;
  error_ = error;
  changed_.notify_all();
}

void Server::log_change(Share& share, std::vector<std::byte> entry) {
  share.chain->append(std::move(entry));
}

void Server::log_change(Slot& slot, std::vector<std::byte> entry) {
  slot.entry = slot.share->chain->append(std::move(entry));
}

// Gradients that were received but are in no sum: a copy must take them when they are sent again.
std::vector<RangeStore::Early> Server::early_of(const Slot& slot) const {
  std::vector<RangeStore::Early> early;
  if (copies_gradients_) return early;  // copies hold them, too
  for (const HeldPush& push : slot.held) early.push_back({push.from, push.life, push.head.sequence});
  return early;
}

// The slot is about to count its next update as applied. `data`: its gradient, if it is to be sent.
void Server::log_update(Slot& slot, int64_t version, double lr, double weight, ApplyChange::Gradient gradient,
                        std::span<const std::byte> data) {
  if (!is_copied()) return;
  if (!slot.share->chain->passes_on()) {  // what the entry says does not matter
    log_change(slot, {});
    return answer_pushes(slot);
  }
  EntryWriter entry(Change::kApply);
  entry.put(ApplyChange{static_cast<int64_t>(slot.store.number()), slot.updates + 1, version, lr, weight,
                        slot.square, slot.shortfall, gradient});
  put_marks(entry, slot.store.marks(early_of(slot)));
  if (gradient == ApplyChange::kHere) entry.put_bytes(data);
  log_change(slot, entry.take());
  answer_pushes(slot);
}

// All gradients of the slot's next update are in its sum, which waits to be clipped.
void Server::log_sum(Slot& slot) {
  if (!is_copied() || copies_gradients_) return;
  if (slot.store.counted() > 0) {
    EntryWriter entry(Change::kSum);
    entry.put(SumChange{static_cast<int64_t>(slot.store.number()), slot.updates + 1, slot.store.counted(),
                        slot.shortfall, slot.measure ? 1 : 0});
    put_marks(entry, slot.store.marks(early_of(slot)));
    log_change(slot, entry.put_bytes(slot.store.sum()).take());
    slot.sum_copied = true;
  }
  answer_pushes(slot);
}

void Server::answer_pushes(Slot& slot) {
  for (const Unanswered& push : std::exchange(slot.unanswered, {})) answer_when_safe(slot, push.answer, {});
}

void Server::take_entry(int from, const Message& request, const Messenger::Answer& answer) {
  auto head = request.get_head<EntryHead>();
  const int server = from - options_.workers;
  const bool known = head.home >= 0 && head.home < options_.servers;
  Share* share = known ? share_of(static_cast<int>(head.home)) : nullptr;
  if (share == nullptr || share->serves || !succession_.holds(share->home, server))
    throw CommError("rank {} sent a change of the ranges of server {}, of which server {} holds no copy",
                    from, head.home, own_index());
  Chain& chain = *share->chain;
  if (head.number > chain.last() + 1 || head.number < 1)
    throw CommError("rank {} sent change {} of the ranges of server {} after {}", from, head.number,
                    head.home, chain.last());
  if (head.number == chain.last() + 1) {
    if (share->complete || !concerns_missing(*share, request.payload)) change(*share, request.payload);
    std::vector<std::byte> copy;
    if (chain.passes_on()) copy.assign(request.payload.begin(), request.payload.end());
    chain.append(std::move(copy));
  }
  chain.when_safe(head.number, [answer] { answer({}); });
}

Server::Slot& Server::copy_of(Share& share, int64_t range) {
  bool known = range >= 0 && static_cast<size_t>(range) < by_range_.size();
  Slot* slot = known ? by_range_[static_cast<size_t>(range)] : nullptr;
  if (slot == nullptr || slot->share != &share)
    throw CommError("range {} is not one of server {}, as server {} knows them", range, share.home,
                    own_index());
  return *slot;
}

// Applies an entry to the copies of a home.
void Server::change(Share& share, std::span<const std::byte> bytes) {
  EntryReader entry(bytes);
  auto touched = [&](int64_t range) -> Slot& {
    Slot& slot = copy_of(share, range);
    slot.entry = share.chain->last() + 1;
    return slot;
  };
  auto check_worker = [&](int64_t worker) {
    if (worker < 0 || worker >= options_.workers) throw CommError("rank {} is not a worker", worker);
    return static_cast<size_t>(worker);
  };
  auto take_number = [&](int64_t worker, int64_t number, int64_t settled) {
    TakenNumbers& taken = share.taken[check_worker(worker)];
    if (number < 1 || number > kMostVersion || settled > number || taken.full())
      throw CommError("push {} of worker {}, of which {} are settled, is out of range", number, worker,
                      settled);
    taken.settle(settled);
    if (!taken.has(number)) taken.take(number);
  };
  auto check_keys = [&](std::span<const int64_t> keys, size_t size) {
    const int64_t width = opened_ ? opened_->align : 1;
    const bool fits = opened_ && size == keys.size() * static_cast<size_t>(width) * size_of(opened_->type);
    if (!fits) throw CommError("{} keys of server {} with {} bytes", keys.size(), share.home, size);
    for (int64_t key : keys) {
      if (key < 0 || key >= sharding_.elements() / width)
        throw CommError("key {} of server {}: there are {}", key, share.home, sharding_.elements() / width);
      copy_of(share, static_cast<int64_t>(sharding_.range_at(key * width)));
    }
  };
  const auto kind = entry.get<Change>();
  switch (kind) {
    case Change::kAssign: {
      auto head = entry.get<AssignHead>();
      return touched(head.range).store.assign(head.array, entry.rest(), head.version, head.steps);
    }
    case Change::kApply: {
      auto head = entry.get<ApplyChange>();
      Slot& slot = touched(head.range);
      slot.store.set_marks(get_marks(entry));
      return copy_update(slot, head, entry.rest());
    }
    case Change::kSum: {
      auto head = entry.get<SumChange>();
      Slot& slot = touched(head.range);
      slot.store.set_marks(get_marks(entry));
      slot.store.set_sum(entry.rest(), head.counted);
      slot.shortfall = head.shortfall;
      slot.measure = head.measure != 0;
      slot.sum_copied = true;
      return;
    }
    case Change::kHold: {
      auto head = entry.get<HoldChange>();
      check_worker(head.worker);
      return copy_held(touched(head.head.range), head, entry.rest());
    }
    case Change::kAdd: {
      auto head = entry.get<AddChange>();
      check_worker(head.worker);
      return copy_gradient(touched(head.range), head, entry.rest());
    }
    case Change::kNow: {
      auto head = entry.get<NowChange>();
      Slot& slot = touched(head.range);
      std::span<const std::byte> data = entry.rest();
      check_part(static_cast<int>(head.worker), slot, head.begin,
                 static_cast<int64_t>(data.size() / size_of(opened_->type)));
      take_number(head.worker, head.sequence, head.settled);
      slot.square = -1;
      return slot.store.apply_now(head.begin, data, head.scale);
    }
    case Change::kKeys: {
      auto head = entry.get<KeysChange>();
      std::vector<int64_t> keys = entry.get_many(head.keys);
      check_keys(keys, entry.left());
      take_number(head.worker, head.sequence, head.settled);
      return apply_keys(share, keys, entry.rest());
    }
    case Change::kDecide: {
      auto input = entry.get<SchedulerInput>();
      std::span<const std::byte> why = entry.rest();
      if (!copied_) throw CommError("server {} has no copy of the scheduler", own_index());
      copied_->take(input, {reinterpret_cast<const char*>(why.data()), why.size()});
      return;
    }
    case Change::kClipped:
      if (!copied_) throw CommError("server {} has no copy of the scheduler", own_index());
      return copied_->note_factor(entry.get<ClipHead>());
    case Change::kTableOpen:
    case Change::kTableAssign:
    case Change::kTableNow:
    case Change::kTableHold:
    case Change::kTablePart:
    case Change::kTableUpdate:
    case Change::kTableRound:
      return share.tables->change(entry, kind);
  }
  throw CommError("unknown change of the ranges of server {}", share.home);
}

void Server::copy_held(Slot& slot, const HoldChange& change, std::span<const std::byte> gradient) {
  const auto worker = static_cast<int>(change.worker);
  check_bytes(slot, gradient.size());
  if (change.life < 0 || change.life > kMostRestarts)
    throw CommError("worker {} was restarted {} times", worker, change.life);
  slot.store.reach_life(worker, change.life);
  slot.store.write_off(worker, change.life, change.head.sequence);  // received
  early_bytes_ += gradient.size();
  slot.held.push_back({worker, change.life, change.head, {gradient.begin(), gradient.end()}, {}});
}

void Server::copy_gradient(Slot& slot, const AddChange& change, std::span<const std::byte> gradient) {
  const auto worker = static_cast<int>(change.worker);
  if (change.held == 0)
    copy_held(slot, {change.worker, change.life, {.sequence = change.minibatch}}, gradient);
  auto found = std::find_if(slot.held.begin(), slot.held.end(), [&](const HeldPush& push) {
    return push.from == worker && push.life == change.life && push.head.sequence == change.minibatch;
  });
  if (found == slot.held.end())
    throw CommError("minibatch {} of worker {} is not held for range {}", change.minibatch, worker,
                    slot.store.number());
  slot.store.add(found->payload, change.scale);
  early_bytes_ -= found->payload.size();
  slot.held.erase(found);
}

void Server::check_bytes(const Slot& slot, size_t bytes) {
  if (bytes != slot.store.values()->size())
    throw CommError("range {} has {} bytes; a change with {} does not fit", slot.store.number(),
                    slot.store.values()->size(), bytes);
}

void Server::copy_update(Slot& slot, const ApplyChange& change, std::span<const std::byte> data) {
  if (change.number != slot.updates + 1)
    throw CommError("update {} of the copy of range {} after {}", change.number, slot.store.number(),
                    slot.updates);
  if (change.gradient == ApplyChange::kHere) {
    check_bytes(slot, data.size());
    slot.store.update_with(data, 1, change.lr, change.weight, change.version);
  } else if (change.gradient == ApplyChange::kThere) {
    slot.store.update(change.lr, change.weight, change.version);
  } else {
    slot.store.pass(change.version);
  }
  slot.square = change.square;
  slot.shortfall = change.shortfall;
  slot.measure = slot.sum_copied = false;
  applied(slot);
}

}  // namespace yoke::ps
