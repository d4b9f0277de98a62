// A meeting point that takes up a run: peers that still run say at which step they are, and the newest step
// that one of them has is where the run continues. Nobody works before.
#include <algorithm>

#include "yoke/base/log.h"
#include "yoke/collab/meeting.h"

namespace yoke::collab {

MeetingRecord Meeting::record() const {
  return {"", {epoch_, begun_at_}, previous_};
}

int64_t Meeting::position_of(int64_t epoch) const {
  for (const Position& one : options_.known)
    if (one.epoch == epoch) return one.next_sample;
  return epoch * options_.target_batch;
}

// The record is written before peers are told of a step, so none can be past it.
void Meeting::take_up_if_known(double now) {
  const bool recorded = !options_.known.empty();
  int64_t newest = -1, last = recorded ? 0 : options_.steps;
  for (const Position& one : options_.known) last = std::max(last, one.epoch);
  for (const Peer& peer : peers_)
    if (peer.link >= 0 && peer.epoch <= last) newest = std::max(newest, peer.epoch);
  const bool found = recorded && newest == last;
  if (newest < 0 || (!found && now < started_ + options_.timeout)) {
    if (newest < 0 && now > started_ + options_.quorum_timeout)
      end("no peer with a state of the run came back (collab.quorum_timeout). Start from saved weights with "
          "--init");
    return;
  }
  taking_up_ = false;
  epoch_ = newest;
  begun_at_ = next_sample_ = position_of(newest);
  previous_ = {epoch_, begun_at_};
  over_ = epoch_ >= options_.steps;
  log::info("collab: the run continues from step {}{}", epoch_,
            recorded && newest < last ? fmt::format("; no peer has step {}, which was the last", last) : "");
}

}  // namespace yoke::collab
