#include "yoke/compute/recompute_policy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "yoke/base/error.h"
#include "yoke/base/units.h"

namespace yoke::compute {
namespace {

using Blocks = std::vector<BlockCost>;
using Segments = std::vector<Segment>;

// The last segment's activations are used immediately.
Segments keep_last(Segments segments) {
  if (!segments.empty()) segments.back().recompute = false;
  return segments;
}

Segments equal_segments(size_t blocks, size_t count) {
  Segments segments;
  for (size_t i = 0; i < count; ++i) {
    segments.push_back({blocks * i / count, blocks * (i + 1) / count, true});
  }
  return keep_last(std::move(segments));
}

int64_t activations(const Blocks& blocks, const Segment& segment) {
  int64_t sum = 0;
  for (size_t i = segment.begin; i < segment.end; ++i) sum += blocks[i].activation_bytes;
  return sum;
}

// All divisions of a chain that never need more than `limit`: for each prefix and each number of kept blocks
// in it, the one that holds least. Holding less is never worse for what follows, so one per state is enough.
class Cuts {
 public:
  Cuts(const Blocks& blocks, int64_t limit) : blocks_(blocks), limit_(limit), n_(blocks.size()) {
    states_.resize((n_ + 1) * (n_ + 1) * 2);
    // Nothing else holds the chain's input, as after a recomputed segment.
    at(0, 0, false) = {0, 0, false};
    for (size_t end = 0; end < n_; ++end) extend(end);
  }

  // The largest number of kept blocks; empty if nothing fits the limit. The last segment is kept.
  std::optional<size_t> most_kept() const {
    for (size_t kept = n_; kept > 0; --kept)
      if (at(n_, kept, true).held < kNone) return kept;
    return std::nullopt;
  }
  bool can_keep(size_t kept) const { return at(n_, kept, true).held < kNone; }

  Segments segments(size_t kept) const {
    Segments reversed;
    bool last_kept = true;
    for (size_t end = n_; end > 0;) {
      const State& state = at(end, kept, last_kept);
      if (last_kept && !reversed.empty() && !reversed.back().recompute)
        reversed.back().begin = state.begin;
      else
        reversed.push_back({state.begin, end, !last_kept});
      if (last_kept) --kept;
      last_kept = state.kept_before;
      end = state.begin;
    }
    std::reverse(reversed.begin(), reversed.end());
    return reversed;
  }

 private:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  // A prefix whose last block is kept or recomputed.
  struct State {
    int64_t held = kNone;      // while what follows is computed
    size_t begin = 0;          // of its last block, or of its last recomputed segment
    bool kept_before = false;  // the block before that
  };

  State& at(size_t end, size_t kept, bool last_kept) {
    return states_[(end * (n_ + 1) + kept) * 2 + (last_kept ? 1 : 0)];
  }
  const State& at(size_t end, size_t kept, bool last_kept) const {
    return const_cast<Cuts*>(this)->at(end, kept, last_kept);
  }

  void extend(size_t begin) {
    for (size_t kept = 0; kept <= begin; ++kept) {
      // On a tie prefer the one with kept neighbours: blocks kept late are freed early.
      for (bool last_kept : {true, false}) {
        const int64_t held = at(begin, kept, last_kept).held;
        if (held == kNone) continue;
        // A kept block before it already holds its input as an output.
        const int64_t with_input = held + (last_kept ? 0 : blocks_[begin].input_bytes);
        offer(begin + 1, kept + 1, true, {with_input + blocks_[begin].activation_bytes, begin, last_kept});
        int64_t sum = 0;
        for (size_t end = begin + 1; end < n_; ++end) {
          sum += blocks_[end - 1].activation_bytes;
          if (with_input + sum > limit_) break;
          offer(end, kept, false, {with_input, begin, last_kept});
        }
      }
    }
  }

  void offer(size_t end, size_t kept, bool last_kept, const State& state) {
    State& known = at(end, kept, last_kept);
    if (state.held <= limit_ && state.held < known.held) known = state;
  }

  const Blocks& blocks_;
  int64_t limit_;
  size_t n_;
  std::vector<State> states_;
};

// The smallest limit for which `fits` is true.
template <class Fits>
int64_t smallest_limit(const Blocks& blocks, const Fits& fits) {
  int64_t low = 0, high = 0;
  for (const BlockCost& block : blocks) high += block.activation_bytes + block.input_bytes;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    fits(Cuts(blocks, middle)) ? high = middle : low = middle + 1;
  }
  return high;
}

Segments smallest_cut(const Blocks& blocks) {
  auto any = [](const Cuts& cuts) { return cuts.most_kept().has_value(); };
  Cuts cuts(blocks, smallest_limit(blocks, any));
  return cuts.segments(*cuts.most_kept());
}

}  // namespace

std::optional<int64_t> recompute_budget(const std::string& policy) {
  return policy.starts_with("budget:") ? parse_bytes(policy.substr(7)) : std::nullopt;
}

std::vector<Segment> recompute_segments(const std::string& policy, const std::vector<BlockCost>& blocks) {
  size_t n = blocks.size();
  if (policy != "none" && policy != "blocks" && policy != "sqrt" && !recompute_budget(policy)) {
    throw ConfigError(
        "train.recompute = \"{}\": expected none, blocks, sqrt and budget:<bytes> such as budget:512MB",
        policy);
  }
  if (n == 0) return {};
  if (policy == "none") return {{0, n, false}};
  if (policy == "blocks") return equal_segments(n, n);
  if (policy == "sqrt") return equal_segments(n, static_cast<size_t>(std::ceil(std::sqrt(n))));
  return smallest_cut(blocks);
}

std::optional<std::vector<Segment>> segments_within(int64_t bytes, const std::vector<BlockCost>& blocks) {
  Cuts cuts(blocks, bytes);
  std::optional<size_t> kept = cuts.most_kept();
  return kept ? std::optional(cuts.segments(*kept)) : std::nullopt;
}

std::vector<Segment> segments_keeping(size_t kept, const std::vector<BlockCost>& blocks) {
  YOKE_CHECK(kept >= 1 && kept <= blocks.size(), "{} of {} blocks are kept", kept, blocks.size());
  auto keeps = [&](const Cuts& cuts) { return cuts.can_keep(kept); };
  return Cuts(blocks, smallest_limit(blocks, keeps)).segments(kept);
}

size_t kept_blocks(const std::vector<Segment>& segments) {
  size_t count = 0;
  for (const Segment& segment : segments) count += segment.recompute ? 0 : segment.end - segment.begin;
  return count;
}

int64_t peak_bytes(const std::vector<Segment>& segments, const std::vector<BlockCost>& blocks) {
  int64_t held = 0;
  int64_t peak = 0;
  bool last_kept = false;
  for (const Segment& segment : segments) {
    held += last_kept ? 0 : blocks[segment.begin].input_bytes;
    peak = std::max(peak, held + activations(blocks, segment));
    held += segment.recompute ? 0 : activations(blocks, segment);
    last_kept = !segment.recompute;
  }
  return peak;
}

size_t forward_calls(const std::vector<Segment>& segments) {
  size_t calls = 0;
  for (const Segment& segment : segments)
    calls += (segment.end - segment.begin) * (segment.recompute ? 2 : 1);
  return calls;
}

}  // namespace yoke::compute
