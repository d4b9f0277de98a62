// The part of Server that clips the gradient of an update by its norm over all servers.
//
// Ranges that have all gradients of such an update wait for its factor. A server sends its sum only after all
// of its ranges are complete, so none of them can be past the update when the factor arrives.
#include <algorithm>
#include <cmath>

#include "yoke/base/error.h"
#include "yoke/ps/server.h"

namespace yoke::ps {
namespace {

template <class Head>
comm::Message clip_message(uint16_t kind, const Head& head) {
  comm::Message message;
  message.kind = kind;
  message.set_head(head);
  return message;
}

}  // namespace

// Sends the sum of squares of the oldest update that waits to be clipped, once all ranges have its gradients.
// Call it last: it may trigger the next update.
void Server::tell_square() {
  auto update = std::find_if(decided_.begin(), decided_.end(),
                             [](const Decided& one) { return one.head.clip_norm > 0 && !one.factor; });
  if (update == decided_.end() || update->told || update->ranges_summed < slots_.size()) return;
  update->told = true;
  double square = 0;
  for (const auto& slot : slots_) square += *slot->summed;
  tell_square_of(update->head.number, square);
}

void Server::tell_square_of(int64_t number, double square) {
  if (scheduler_) return take_square(own_index(), {number, square});
  tell(options_.workers, clip_message(kSquare, SquareHead{number, square}));
}

void Server::take_square(int server, const SquareHead& head) {
  std::optional<ClipHead> clip = clipping_.add(server, head);
  if (!clip) return;
  for (int other = 1; other < options_.servers; ++other)
    tell(options_.workers + other, clip_message(kClip, *clip));
  take_factor(*clip);
}

void Server::take_factor(const ClipHead& head) {
  if (slots_.empty()) return;  // nothing to clip
  Decided* update = decided(head.number);
  bool awaited = update != nullptr && update->told && !update->factor;
  if (!awaited || !(head.factor >= 0 && head.factor <= 1))
    throw CommError("unexpected `clip` message from the scheduler: update {} by {}", head.number,
                    head.factor);
  update->factor = head.factor;
  for (auto& slot : slots_) advance(*slot);
  tell_square();
}

}  // namespace yoke::ps
