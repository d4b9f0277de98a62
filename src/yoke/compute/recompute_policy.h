// Which blocks of a chain forget their activations: train.recompute as a plan, without tensors.
//
// A chain of n blocks is cut into segments. Forward keeps the input of each segment, backward computes one
// segment at a time again: peak = inputs of all segments + activations of the largest segment (Chen et al.
// 2016; for n equal blocks in k segments k + ceil(n/k), least at k = sqrt(n)). Backward starts with the last
// segment right after its forward, so that one is kept as it is: recomputing it would gain nothing.
#pragma once

#include <cstddef>
#include <cstdint>
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

// `policy`: none (one segment), blocks (each block is one), sqrt (ceil(sqrt(n)) segments of about equal
// length), budget:<bytes> (fewest recomputed blocks with peak_bytes() <= budget). Throws ConfigError for
// another text and for a budget that no cut keeps; it names the smallest one that works.
std::vector<Segment> recompute_segments(const std::string& policy, const std::vector<BlockCost>& blocks);

// Bytes by the formula above. Without recomputation: all activations and the input.
int64_t peak_bytes(const std::vector<Segment>& segments, const std::vector<BlockCost>& blocks);

// How often blocks run in one forward and backward: n + the length of recomputed segments.
size_t forward_calls(const std::vector<Segment>& segments);

}  // namespace yoke::compute
