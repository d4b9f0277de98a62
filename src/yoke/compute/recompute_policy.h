// Which blocks of a chain forget their activations: train.recompute as a plan, without tensors.
//
// A chain of n blocks is cut into segments. Forward keeps the input of each segment, backward computes one
// segment at a time again: peak = inputs of all segments + activations of the largest segment (Chen et al.
// 2016; for n equal blocks in k segments k + ceil(n/k), least at k = sqrt(n)). Backward starts with the last
// segment right after its forward, so that one is kept as it is: recomputing it would gain nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace yoke::compute {

struct BlockCost {
  int64_t activation_bytes = 1;  // what its forward leaves for backward, output included
  int64_t input_bytes = 1;       // what must be kept to run it again
};

// Blocks [begin, end).
struct Segment {
  size_t begin;
  size_t end;
  bool recompute;
  bool operator==(const Segment&) const = default;
};

// The bytes of budget:<bytes>; nothing for the other policies.
std::optional<int64_t> recompute_budget(const std::string& policy);

// `policy`: none (one segment), blocks (each block is one), sqrt (ceil(sqrt(n)) segments of about equal
// length). A budget is of the whole step, which is not known here: it gets the cut with the smallest
// peak_bytes(), and who can measure takes segments_within() from there. Throws ConfigError for another text.
std::vector<Segment> recompute_segments(const std::string& policy, const std::vector<BlockCost>& blocks);

// Fewest recomputed blocks with peak_bytes() <= `bytes`; nothing where no cut keeps that.
std::optional<std::vector<Segment>> segments_within(int64_t bytes, const std::vector<BlockCost>& blocks);

// Bytes by the formula above. Without recomputation: all activations and the input.
int64_t peak_bytes(const std::vector<Segment>& segments, const std::vector<BlockCost>& blocks);

// How often blocks run in one forward and backward: n + the length of recomputed segments.
size_t forward_calls(const std::vector<Segment>& segments);

}  // namespace yoke::compute
