// The part of Server that clips the gradient of an update by its norm over all servers.
//
// Ranges that have all gradients of such an update wait for its factor. The sum of a home is sent only after
// all of its ranges are complete, so none of them can be past the update when the factor arrives. Sums are by
// home, so that the result does not depend on who serves it.
#include <algorithm>
#include <cmath>

#include "yoke/base/error.h"
#include "yoke/ps/server.h"

namespace yoke::ps {
// Sends the sums of squares of the oldest update that waits to be clipped, for each home once all its ranges
// have its gradients. Call it last: it may trigger the next update.
void Server::tell_square() {
  for (bool told = true; told;) {
    told = false;
    for (size_t i = 0; i < shares_.size() && !told; ++i)
      told = shares_[i]->serves && tell_square(*shares_[i]);
  }
}

bool Server::tell_square(Share& share) {
  auto update = std::find_if(decided_.begin(), decided_.end(),
                             [](const Decided& one) { return one.head.clip_norm > 0 && !one.factor; });
  if (update == decided_.end() || update->told[share.index]) return false;
  if (update->summed[share.index] < share.slots.size()) return false;
  double square = 0;
  for (const auto& slot : share.slots) square += *slot->summed;
  update->told[share.index] = true;
  SquareHead head{update->head.number, square, share.home};
  if (scheduler() != nullptr)
    take_square(messenger_.rank(), head);
  else
    tell(scheduler_peer(), message_with(kSquare, head));
  return true;
}

// The scheduler is another: it does not know what its predecessor was told.
void Server::tell_squares_again() {
  for (Decided& update : decided_)
    if (!update.factor) update.told.assign(shares_.size(), false);
  tell_square();
}

void Server::take_square(int from, const SquareHead& head) {
  const bool moved = succession_.last_move(0).number > 0 && succession_.target(0) != own_index();
  if (moved && scheduler() == nullptr && succession_.owner(0) != own_index()) return;  // it is told again
  if (is_copied() && scheduler() == nullptr) throw NotServedYet();
  if (scheduler() == nullptr)
    throw CommError("unexpected `square` message from rank {} to rank {}", from, messenger_.rank());
  if (std::optional<ClipHead> known = copied_ ? copied_->factor(head.number) : std::nullopt)
    return from == messenger_.rank() ? take_factor(*known) : tell(from, message_with(kClip, *known));
  const int home = is_copied() ? static_cast<int>(head.home) : from - options_.workers;
  std::optional<ClipHead> clip = clipping_.add(home, head, is_copied());
  if (!clip) return;
  if (!copied_) return send_factor(*clip);
  copied_->note_factor(*clip);
  Share& share = *share_of(0);
  log_change(share, EntryWriter(Change::kClipped).put(*clip).take());
  share.chain->when_safe(share.chain->last(), [this, clip] { send_factor(*clip); });
}

void Server::send_factor(const ClipHead& clip) {
  tell_servers(message_with(kClip, clip));
  take_factor(clip);
}

void Server::take_factor(const ClipHead& head) {
  if (!(head.factor >= 0 && head.factor <= 1))
    throw CommError("unexpected `clip` message from the scheduler: update {} by {}", head.number,
                    head.factor);
  Decided* update = decided(head.number);
  if (update == nullptr || update->factor) {
    if (is_copied()) return;  // told again by a new scheduler
    throw CommError("unexpected `clip` message from the scheduler: update {} by {}", head.number,
                    head.factor);
  }
  const bool told = std::find(update->told.begin(), update->told.end(), true) != update->told.end();
  if (!told && !is_copied())
    throw CommError("unexpected `clip` message from the scheduler: update {} by {}", head.number,
                    head.factor);
  update->factor = head.factor;
  forget_done();
  for (auto& slot : slots_) advance(*slot);
  tell_square();
}

}  // namespace yoke::ps
