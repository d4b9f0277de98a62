// The part of Server that ceases to serve a home, which another server is about to serve.
//
// What remains is what a copy has: the state that the log describes. Gradients that no entry has brought are
// left out; their senders have no answer yet, and are told to send them again.
#include <algorithm>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/ps/server.h"

namespace yoke::ps {

using comm::Messenger;

void Server::stand_back(Share& share) {
  share.serves = false;
  std::erase_if(slots_, [&](const Slot* slot) { return slot->share == &share; });
  forget_share_in_updates(share);
  for (auto& slot : share.slots) {
    park_requests(share, *slot);
    const std::vector<std::byte> state = save_slot(*slot);
    for (const HeldPush& push : slot->held) early_bytes_ -= push.payload.size();
    auto copy = make_slot(slot->store.number(), slot->store.range(), opened_->type, share);
    by_range_[slot->store.number()] = copy.get();
    slot = std::move(copy);
    load_slot(*slot, state);
  }
  share.tables->stand_back([&](const Messenger::Answer& answer) { share.parked.push_back(answer); });
}

// Requests for this home that wait for something.
void Server::park_requests(Share& share, Slot& slot) {
  auto park = [&](const Messenger::Answer& answer) {
    if (answer) share.parked.push_back(answer);
  };
  for (const WaitingPull& pull : slot.pulls) park(pull.answer);
  for (const WaitingFetch& fetch : slot.fetches) park(fetch.answer);
  for (const HeldPush& push : slot.held) park(push.answer);
  for (const Unanswered& push : slot.unanswered) park(push.answer);
}

// Their senders send them again, to whoever serves now.
void Server::answer_parked(Share& share) {
  for (const Messenger::Answer& answer : std::exchange(share.parked, {}))
    answer({message_with(kMoved, succession_.last_move(share.home))});
}

// Updates that are decided no longer wait for the ranges of this share.
void Server::forget_share_in_updates(Share& share) {
  for (Decided& update : decided_) {
    for (const auto& slot : share.slots)
      if (slot->filled && slot->updates < update.head.number) --update.ranges_left;
    update.summed.resize(shares_.size(), 0);
    update.told.resize(shares_.size(), false);
    update.summed[share.index] = 0;
    update.told[share.index] = false;
  }
}

// This server does not hold these ranges any more.
void Server::drop_share(Share& share) {
  forget_share_in_updates(share);
  share.complete = share.serves = false;
  share.copying.reset();
  for (const auto& slot : share.slots) {
    for (const HeldPush& push : slot->held) early_bytes_ -= push.payload.size();
    by_range_[slot->store.number()] = nullptr;
  }
  share.slots.clear();
  share.taken.assign(static_cast<size_t>(options_.workers), {});
  make_tables(share);
  share.chain->start_after(share.chain->last());
  if (share.home == 0) copied_.reset();
  forget_done();
}

}  // namespace yoke::ps
