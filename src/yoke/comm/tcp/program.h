// A step list made ready to run: steps become units of whole frames, each with the units it has to wait for.
//
// Rounds are not waited for as such. A unit goes ahead, frame by frame, as soon as what it touches is ready:
// the next round's first frame leaves while the last frames of this one still arrive. The result is that of
// the rounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "yoke/plan/collectives/steps.h"

namespace yoke::comm::tcp {

// Messages travel in frames of at most this many bytes: small enough to be combined while they are in the
// cache, large enough that headers cost nothing.
inline constexpr size_t kFrameBytes = 256 << 10;

// One send, one receive, or one combination of what several peers send for the same range in the same round.
struct Unit {
  plan::Action action = plan::Action::kSend;
  int round = 0;
  plan::Range range;
  std::vector<int> peers;      // in list order: the order of combination
  int64_t frame_elements = 0;  // of all frames but the last
  int frames = 1;              // an empty message is one empty frame
  std::vector<int> waits_for;  // units whose unfinished part must not overlap a frame of this one
  bool copies = false;         // kSend: something arrives in its place in the same round
  bool all_of_them = false;    // combines: the contributions of all ranks meet here
  bool is_final = false;       // combines: nothing is added to the result any more, anywhere

  bool combines() const { return action == plan::Action::kCombine || action == plan::Action::kMerge; }

  plan::Range frame(int index) const;
};

// What goes to and comes from one peer, in order.
struct Slot {
  int unit = 0;
  int member = 0;  // of the unit's peers
};
struct PeerQueue {
  int peer = 0;
  std::vector<Slot> sends;
  std::vector<Slot> receives;
  int most_frames = 0;  // of one message: no more lanes than that are of use
};

struct Program {
  std::vector<Unit> units;
  std::vector<PeerQueue> peers;
  int64_t elements_sent = 0;
  bool divides_at_end = false;  // a mean is divided by this rank when all is done, not in a final unit
  bool writes_outside(plan::Range allowed) const;
  bool touches_outside(plan::Range allowed) const;
};

// Requires: `steps` is this rank's list for `request`. `element_bytes` of one element. Throws ConfigError for
// a merge of more than 64 ranks.
Program compile(const plan::CollectiveRequest& request, const std::vector<plan::Step>& steps,
                size_t element_bytes);

// Part `rank` of the request's working buffer.
plan::Range own_part(const plan::CollectiveRequest& request);

bool overlap(const plan::Range& a, const plan::Range& b);

}  // namespace yoke::comm::tcp
