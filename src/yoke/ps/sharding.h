// Assigns ranges of the parameters to servers.
//
// The parameters are one vector: all tensors in the order in which the model uses them. It is split into
// ranges of bounded size. Small tensors share a range; large ones span several ranges and servers. Each range
// goes to the server with the fewest bytes so far, so that the first layers are on all servers and loads
// differ by at most one range.
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
  int64_t range_bytes = 256 << 10;  // maximum size of a range
  int64_t align = 1;                // ranges start at multiples of this many elements (the values of one key)
};

class Sharding {
 public:
  Sharding() = default;
  // `tensors`: elements of each; a 0 ends a range: what follows belongs to another rank. Throws ConfigError
  // if there are no parameters or no servers, or a range would hold less than one element.
  Sharding(std::span<const int64_t> tensors, const ShardingOptions& options);

  const std::vector<Range>& ranges() const { return ranges_; }  // in order, without gaps
  int64_t elements() const { return ranges_.empty() ? 0 : ranges_.back().end(); }
  int64_t elements_of(int server) const;
  // Index of the range that holds an element. Requires: 0 <= element < elements().
  size_t range_at(int64_t element) const;

 private:
  std::vector<Range> ranges_;
};

}  // namespace yoke::ps
