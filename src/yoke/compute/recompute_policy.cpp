#include "yoke/compute/recompute_policy.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "yoke/base/error.h"
#include "yoke/base/units.h"

namespace yoke::compute {
namespace {

using Blocks = std::vector<BlockCost>;
using Segments = std::vector<Segment>;

// The last segment's activations are used as soon as they are made.
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

// Cuts from the end, each segment as long as its activations stay within `limit`: the last segment, which is
// not recomputed, comes out as long as possible. Empty where a single block exceeds the limit.
Segments cut(const Blocks& blocks, int64_t limit) {
  Segments reversed;
  for (size_t end = blocks.size(); end > 0;) {
    size_t begin = end;
    int64_t sum = 0;
    while (begin > 0 && sum + blocks[begin - 1].activation_bytes <= limit) {
      sum += blocks[--begin].activation_bytes;
    }
    if (begin == end) return {};
    reversed.push_back({begin, end, true});
    end = begin;
  }
  std::reverse(reversed.begin(), reversed.end());
  return keep_last(std::move(reversed));
}

// Every size a segment can have: between two of them the greedy cut does not change.
std::set<int64_t> possible_limits(const Blocks& blocks) {
  std::set<int64_t> limits;
  for (size_t begin = 0; begin < blocks.size(); ++begin) {
    int64_t sum = 0;
    for (size_t end = begin; end < blocks.size(); ++end) {
      sum += blocks[end].activation_bytes;
      limits.insert(sum);
    }
  }
  return limits;
}

// All cuts that differ, each with the largest segment that it allows.
std::vector<Segments> possible_cuts(const Blocks& blocks) {
  std::vector<Segments> cuts;
  for (int64_t limit : possible_limits(blocks)) {
    Segments segments = cut(blocks, limit);
    if (!segments.empty() && (cuts.empty() || cuts.back() != segments)) cuts.push_back(std::move(segments));
  }
  return cuts;
}

Segments smallest_cut(const Blocks& blocks) {
  std::vector<Segments> cuts = possible_cuts(blocks);
  return *std::min_element(cuts.begin(), cuts.end(), [&](const Segments& a, const Segments& b) {
    return peak_bytes(a, blocks) < peak_bytes(b, blocks);
  });
}

}  // namespace

std::optional<int64_t> recompute_budget(const std::string& policy) {
  return policy.starts_with("budget:") ? parse_bytes(policy.substr(7)) : std::nullopt;
}

std::vector<Segment> recompute_segments(const std::string& policy, const std::vector<BlockCost>& blocks) {
  size_t n = blocks.size();
  if (policy != "none" && policy != "blocks" && policy != "sqrt" && !recompute_budget(policy)) {
    throw ConfigError(
        "train.recompute = \"{}\": accepted are none, blocks, sqrt and budget:<bytes> such as budget:512MB",
        policy);
  }
  if (n == 0) return {};
  if (policy == "none") return {{0, n, false}};
  if (policy == "blocks") return equal_segments(n, n);
  if (policy == "sqrt") return equal_segments(n, static_cast<size_t>(std::ceil(std::sqrt(n))));
  return smallest_cut(blocks);
}

std::optional<std::vector<Segment>> segments_within(int64_t bytes, const std::vector<BlockCost>& blocks) {
  std::optional<Segments> best;
  for (Segments& segments : possible_cuts(blocks)) {
    bool fits = peak_bytes(segments, blocks) <= bytes;
    if (fits && (!best || forward_calls(segments) < forward_calls(*best))) best = std::move(segments);
  }
  return best;
}

int64_t peak_bytes(const std::vector<Segment>& segments, const std::vector<BlockCost>& blocks) {
  int64_t kept = 0;
  int64_t largest = 0;
  for (const Segment& segment : segments) {
    kept += blocks[segment.begin].input_bytes;
    largest = std::max(largest, activations(blocks, segment));
  }
  return kept + largest;
}

size_t forward_calls(const std::vector<Segment>& segments) {
  size_t calls = 0;
  for (const Segment& segment : segments)
    calls += (segment.end - segment.begin) * (segment.recompute ? 2 : 1);
  return calls;
}

}  // namespace yoke::compute
