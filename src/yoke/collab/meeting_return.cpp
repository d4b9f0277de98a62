// A run that is taken up from another step than the one it was at: by a new meeting point, whose peers say at
// which step they are (nobody works before), or a step back, when none of those that have the newest state
// can give it to others.
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

// The newest step, at most `last`, whose state a peer has that is here and accepts connections; -1: none.
int64_t Meeting::newest_to_fetch(int64_t last) const {
  int64_t newest = -1;
  for (const Peer& peer : peers_)
    if (peer.link >= 0 && !peer.address.empty() && peer.epoch <= last) newest = std::max(newest, peer.epoch);
  return newest;
}

// The record is written before peers are told of a step, so none can be past it.
void Meeting::take_up_if_known(double now) {
  const bool recorded = !options_.known.empty();
  int64_t last = recorded ? 0 : options_.steps;
  for (const Position& one : options_.known) last = std::max(last, one.epoch);
  const int64_t newest = newest_to_fetch(last);
  const bool found = recorded && newest == last;
  if (newest < 0 || (!found && now < started_ + options_.timeout)) {
    if (newest < 0 && now > started_ + options_.quorum_timeout)
      end("no peer that has a state of the run and accepts connections came back (collab.quorum_timeout). "
          "Start from saved weights with --init");
    return;
  }
  taking_up_ = false;
  epoch_ = newest;
  begun_at_ = next_sample_ = position_of(newest);
  previous_ = {epoch_, begun_at_};
  over_ = epoch_ >= options_.steps;
  over_since_ = now;
  log::info("collab: the run continues from step {}{}", epoch_,
            recorded && newest < last
                ? fmt::format("; nobody can be asked for step {}, which was the last", last)
                : "");
}

// The newest state is with peers that accept no connections: nobody sums, and nobody can fetch it.
void Meeting::go_back_or_end() {
  const int64_t newest = newest_to_fetch(epoch_);
  if (newest == epoch_) return;  // dropped, and will be back
  if (newest < 0 || newest != previous_.epoch)
    return end(
        fmt::format("nobody is left who accepts connections and has the state of step {}. Start a "
                    "peer without --client-only",
                    epoch_));
  log::warn("collab: nobody who accepts connections has step {}: the run continues from step {}", epoch_,
            newest);
  losses_.resize(losses_.empty() ? 0 : losses_.size() - 1);
  epoch_ = newest;
  begun_at_ = next_sample_ = previous_.next_sample;
  forget_samples();
  for (Peer& peer : peers_) peer.discarded = true;  // what they have summed up is of other samples
}

}  // namespace yoke::collab
