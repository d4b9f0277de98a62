#include "yoke/comm/tcp/program.h"

#include <algorithm>
#include <limits>

#include "yoke/base/error.h"

namespace yoke::comm::tcp {
namespace {

using plan::Action;
using plan::Range;

// kernels::reduce takes 64 sources, one of which is our own value.
constexpr size_t kMostPeers = 63;

// Enough to send parts of a wave while the sums of the one before are computed.
constexpr int kRoundsAhead = 2;

bool inside(const Range& inner, const Range& outer) {
  return inner.count == 0 ||
         (inner.begin >= outer.begin && inner.begin + inner.count <= outer.begin + outer.count);
}

// Both ends split a message alike. Medium messages are split too, so that they are combined while they
// arrive.
int64_t elements_per_frame(int64_t count, size_t element_bytes) {
  constexpr size_t kSmall = 64 << 10;
  size_t bytes = static_cast<size_t>(count) * element_bytes;
  size_t frame = bytes <= kSmall ? bytes : std::clamp(bytes / 4, kSmall, kFrameBytes);
  return std::max<int64_t>(1, static_cast<int64_t>(frame / element_bytes));
}

Unit unit_of(const plan::Step& step, size_t element_bytes) {
  Unit unit;
  unit.action = step.action;
  unit.round = step.round;
  unit.range = step.range;
  unit.frame_elements = elements_per_frame(step.range.count, element_bytes);
  int64_t frames = (step.range.count + unit.frame_elements - 1) / unit.frame_elements;
  YOKE_CHECK(frames < std::numeric_limits<int>::max(), "{} frames in one step", frames);
  unit.frames = std::max(1, static_cast<int>(frames));
  return unit;
}

// Contributions to one range in one round are combined in one pass: one rounding for 16-bit types.
bool joins(const Unit& last, const plan::Step& step) {
  return step.action == last.action && last.round == step.round && last.range == step.range &&
         (last.peers.size() < kMostPeers || last.action == Action::kMerge) &&
         std::find(last.peers.begin(), last.peers.end(), step.peer) == last.peers.end();
}

PeerQueue& queue_of(Program& program, int peer) {
  auto found = std::find_if(program.peers.begin(), program.peers.end(),
                            [&](const PeerQueue& queue) { return queue.peer == peer; });
  if (found != program.peers.end()) return *found;
  program.peers.push_back({peer, {}, {}, 0});
  return program.peers.back();
}

int unit_for(Program& program, int& last_combine, const plan::Step& step, size_t element_bytes) {
  if (last_combine >= 0 && joins(program.units[static_cast<size_t>(last_combine)], step)) return last_combine;
  program.units.push_back(unit_of(step, element_bytes));
  int index = static_cast<int>(program.units.size()) - 1;
  if (program.units.back().combines()) last_combine = index;
  if (step.action == Action::kReceive) last_combine = -1;
  return index;
}

void add_units(Program& program, const std::vector<plan::Step>& steps, size_t element_bytes) {
  int last_combine = -1;
  for (const plan::Step& step : steps) {
    int index = unit_for(program, last_combine, step, element_bytes);
    Unit& unit = program.units[static_cast<size_t>(index)];
    unit.peers.push_back(step.peer);
    PeerQueue& queue = queue_of(program, step.peer);
    Slot slot{index, static_cast<int>(unit.peers.size()) - 1};
    (step.action == Action::kSend ? queue.sends : queue.receives).push_back(slot);
    queue.most_frames = std::max(queue.most_frames, unit.frames);
    if (step.action == Action::kSend) program.elements_sent += step.range.count;
  }
}

// A send takes the value from before the round; combinations happen in list order.
bool must_wait(const Unit& unit, size_t at, const Unit& other, size_t other_at) {
  bool other_sends = other.action == Action::kSend;
  if (unit.action == Action::kSend) return !other_sends && other.round < unit.round;
  return other_sends ? other.round <= unit.round : other_at < at;
}

void add_waits(Program& program) {
  for (size_t at = 0; at < program.units.size(); ++at) {
    Unit& unit = program.units[at];
    for (size_t other = 0; other < program.units.size(); ++other) {
      Unit& before = program.units[other];
      if (other == at || !overlap(unit.range, before.range) || !must_wait(unit, at, before, other)) continue;
      unit.waits_for.push_back(static_cast<int>(other));
      // Two ranks that exchange a range in one round would deadlock: each would wait until the other has read
      // its send before overwriting the range. Copying the frames breaks the cycle.
      if (unit.action == Action::kReceive && before.action == Action::kSend && before.round == unit.round)
        before.copies = true;
    }
  }
}

bool changed_later(const Program& program, size_t at) {
  const Unit& unit = program.units[at];
  for (size_t other = 0; other < program.units.size(); ++other) {
    const Unit& later = program.units[other];
    if (later.action != Action::kSend && other > at && overlap(later.range, unit.range)) return true;
  }
  return false;
}

// All contributions meet at one rank, in one round or in consecutive ones.
bool gathers_at_owner(plan::Algorithm algorithm) {
  return algorithm == plan::Algorithm::kDirect || algorithm == plan::Algorithm::kStar ||
         algorithm == plan::Algorithm::kSummation;
}

// Where a mean is divided: all_reduce at the last combination whose result is not overwritten later;
// otherwise at the owner, or at the end by the rank that gets the result.
bool is_final(const Program& program, size_t at, const plan::CollectiveRequest& request) {
  if (!program.units[at].combines() || changed_later(program, at)) return false;
  return request.op == plan::Collective::kAllReduce || gathers_at_owner(request.algorithm);
}

// A merge combines all contributions, our own included, in one pass.
void check_merges(const Program& program) {
  for (const Unit& unit : program.units) {
    if (unit.action == Action::kMerge && unit.peers.size() > kMostPeers)
      throw ConfigError("an exchange among {} ranks: at most {}. Hint: let Yoke choose the algorithm.",
                        unit.peers.size() + 1, kMostPeers + 1);
  }
}

bool is_reduction(plan::Collective op) {
  return op == plan::Collective::kReduce || op == plan::Collective::kReduceScatter;
}

}  // namespace

bool overlap(const Range& a, const Range& b) {
  return a.count > 0 && b.count > 0 && a.begin < b.begin + b.count && b.begin < a.begin + a.count;
}

Range Unit::frame(int index) const {
  int64_t skip = frame_elements * index;
  return {range.begin + skip, std::min(frame_elements, range.count - skip)};
}

bool Program::writes_outside(Range allowed) const {
  return std::any_of(units.begin(), units.end(), [&](const Unit& unit) {
    return unit.action != Action::kSend && !inside(unit.range, allowed);
  });
}

bool Program::touches_outside(Range allowed) const {
  return std::any_of(units.begin(), units.end(),
                     [&](const Unit& unit) { return !inside(unit.range, allowed); });
}

Range own_part(const plan::CollectiveRequest& request) {
  if (request.parts.empty()) return plan::part_of(request.count, request.rank, request.size);
  int64_t begin = 0;
  for (int part = 0; part < request.rank; ++part) begin += request.parts[static_cast<size_t>(part)];
  return {begin, request.parts[static_cast<size_t>(request.rank)]};
}

Program compile(const plan::CollectiveRequest& request, const std::vector<plan::Step>& steps,
                size_t element_bytes) {
  Program program;
  add_units(program, steps, element_bytes);
  check_merges(program);
  program.contributors = request.size - request.spares;
  if (request.algorithm == plan::Algorithm::kSummation) program.rounds_ahead = kRoundsAhead;
  add_waits(program);
  for (size_t at = 0; at < program.units.size(); ++at) {
    Unit& unit = program.units[at];
    unit.all_of_them = unit.combines() && unit.peers.size() + 1 == static_cast<size_t>(program.contributors);
    unit.is_final = is_final(program, at, request);
  }
  bool wanted = request.op == plan::Collective::kReduceScatter || request.rank == request.root;
  program.divides_at_end = is_reduction(request.op) && !gathers_at_owner(request.algorithm) && wanted;
  return program;
}

}  // namespace yoke::comm::tcp
