// Which blocks of a chain drop their activations: train.recompute as a plan, without tensors.
//
// A chain of n blocks is divided into segments. Forward keeps the input of a recomputed segment, and all
// activations of others; backward processes the segments from last to first, recomputes each if needed, and
// frees it. So the peak is the maximum, over all segments, of what the preceding ones hold plus its own
// activations (Chen et al. 2016; n equal blocks in k segments need k + ceil(n/k), least at k = sqrt(n);
// segments that get shorter towards the end need less, about sqrt(2n)). Backward starts with the last segment
// right after its forward, so that one is kept: recomputing it would gain nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace yoke::compute {

struct BlockCost {
  int64_t activation_bytes = 1;  // kept by its forward for backward, including the output
  int64_t input_bytes = 1;       // needed to run it again
};

// Blocks [begin, end).
struct Segment {
  size_t begin;
  size_t end;
  bool recompute;
  bool operator==(const Segment&) const = default;
};

// The bytes of budget:<bytes>; empty for other policies.
std::optional<int64_t> recompute_budget(const std::string& policy);

// `policy`: none (one segment), blocks (one each), sqrt (ceil(sqrt(n)) segments of about equal length). A
// budget refers to the whole step, which is not known here: it gives the division with the smallest
// peak_bytes(), from which a caller that can measure continues with segments_within(). Throws ConfigError for
// other texts.
std::vector<Segment> recompute_segments(const std::string& policy, const std::vector<BlockCost>& blocks);

// Fewest recomputed blocks with peak_bytes() <= `bytes`; empty if that is impossible.
std::optional<std::vector<Segment>> segments_within(int64_t bytes, const std::vector<BlockCost>& blocks);

// The smallest peak_bytes() with `kept` blocks that are not recomputed. Requires 1 <= kept <= n.
std::vector<Segment> segments_keeping(size_t kept, const std::vector<BlockCost>& blocks);
size_t kept_blocks(const std::vector<Segment>& segments);

// Bytes by the formula above. Without recomputation: all activations and the input.
int64_t peak_bytes(const std::vector<Segment>& segments, const std::vector<BlockCost>& blocks);

// Block executions in one forward and backward: n + the length of recomputed segments.
size_t forward_calls(const std::vector<Segment>& segments);

}  // namespace yoke::compute
