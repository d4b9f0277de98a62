// A step list prepared for execution: steps become units of whole frames, each with the units it depends on.
//
// There are no barriers between rounds. A unit proceeds, frame by frame, as soon as its dependencies allow:
// the first frame of the next round is sent while the last frames of this one still arrive. The result is the
// same as with barriers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "yoke/plan/collectives/steps.h"

namespace yoke::comm::tcp {

// Maximum frame size in bytes: small enough to combine in cache, large enough that headers cost nothing.
inline constexpr size_t kFrameBytes = 256 << 10;

// One send, one receive, or one combination of what several peers send for the same range in the same round.
struct Unit {
  plan::Action action = plan::Action::kSend;
  int round = 0;
  plan::Range range;
  std::vector<int> peers;      // in list order, which is the order of combination
  int64_t frame_elements = 0;  // of all frames but the last
  int frames = 1;              // an empty message is one empty frame
  std::vector<int> waits_for;  // a frame must not overlap the unfinished part of these units
  bool copies = false;  // kSend: the range is overwritten in the same round, so frames are copied when posted
  bool all_of_them = false;  // combines(): the contributions of all ranks meet here
  bool is_final = false;     // combines(): the result is complete; nothing is added later, on any rank

  bool combines() const { return action == plan::Action::kCombine || action == plan::Action::kMerge; }

  plan::Range frame(int index) const;
};

// What is sent to and received from one peer, in order.
struct Slot {
  int unit = 0;
  int member = 0;  // index into the unit's peers
};
struct PeerQueue {
  int peer = 0;
  std::vector<Slot> sends;
  std::vector<Slot> receives;
  int most_frames = 0;  // of one message: more lanes than this are of no use
};

struct Program {
  std::vector<Unit> units;
  std::vector<PeerQueue> peers;
  int64_t elements_sent = 0;
  int contributors = 1;  // ranks with data: the divisor of a mean
  // Rounds that a send may be ahead of the slowest send of this rank; 0: any. Connections then carry data in
  // the ratio in which the step list divides it, not in equal parts.
  int rounds_ahead = 0;
  bool divides_at_end = false;  // this rank divides a mean after all steps, not in a final unit
  bool writes_outside(plan::Range allowed) const;
  bool touches_outside(plan::Range allowed) const;
};

// Requires: `steps` is this rank's list for `request`. Throws ConfigError for a merge of more than 64 ranks.
Program compile(const plan::CollectiveRequest& request, const std::vector<plan::Step>& steps,
                size_t element_bytes);

// This rank's part of the working buffer of `request`.
plan::Range own_part(const plan::CollectiveRequest& request);

bool overlap(const plan::Range& a, const plan::Range& b);

}  // namespace yoke::comm::tcp
