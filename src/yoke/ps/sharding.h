// Which server keeps which part of the parameters.
//
// The parameters are one vector: all tensors behind each other, in the order in which the model needs them.
// It is cut into ranges of bounded size. Small tensors share a range; large ones span several, and several
// servers. Every range goes to the server with the fewest bytes so far, so that the first layers lie on all
// of them and no server has more than one range over another.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace yoke::ps {

struct Range {
  int64_t begin = 0;  // elements
  int64_t count = 0;
  int server = 0;
  int64_t end() const { return begin + count; }
  bool operator==(const Range&) const = default;
};

struct ShardingOptions {
  int servers = 1;
  int64_t element_bytes = 4;
  int64_t range_bytes = 256 << 10;  // at most, of a range
  int64_t align = 1;                // cuts fall on multiples of so many elements (values of one key)
};

class Sharding {
 public:
  Sharding() = default;
  // `tensors`: elements of each. Throws ConfigError where there is nothing to shard, no server, or a range
  // would hold less than one element.
  Sharding(std::span<const int64_t> tensors, const ShardingOptions& options);

  const std::vector<Range>& ranges() const { return ranges_; }  // in order, without gaps
  int64_t elements() const { return ranges_.empty() ? 0 : ranges_.back().end(); }
  int64_t elements_of(int server) const;
  // The range that holds an element. Requires: 0 <= element < elements().
  size_t range_at(int64_t element) const;

 private:
  std::vector<Range> ranges_;
};

}  // namespace yoke::ps
