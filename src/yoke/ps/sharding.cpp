#include "yoke/ps/sharding.h"

#include <algorithm>

#include "yoke/base/error.h"

namespace yoke::ps {
namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Where the vector is split: never inside a tensor that fits into the rest of a range.
std::vector<int64_t> cuts_of(std::span<const int64_t> tensors, int64_t most, int64_t align) {
  std::vector<int64_t> ends;
  int64_t begin = 0, at = 0;
  for (int64_t count : tensors) {
    if (count < 0) throw ConfigError("a tensor of {} elements cannot be sharded.", count);
    if (at > begin && (count == 0 || at + count - begin > most)) ends.push_back(begin = at);
    int64_t pieces = (count + most - 1) / most;
    for (int64_t piece = 1; piece < pieces; ++piece)
      ends.push_back(begin = at + std::min(count, round_up(count * piece / pieces, align)));
    at += count;
  }
  if (at > begin) ends.push_back(at);
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

}  // namespace

Sharding::Sharding(std::span<const int64_t> tensors, const ShardingOptions& options) {
  if (options.servers < 1) throw ConfigError("ps.servers = {}: expected at least 1.", options.servers);
  int64_t most = options.range_bytes / options.element_bytes / options.align * options.align;
  if (most < 1)
    throw ConfigError("ps.range_bytes = {}: a range must hold at least {} bytes.", options.range_bytes,
                      options.element_bytes * options.align);
  std::vector<int64_t> load(static_cast<size_t>(options.servers), 0);
  int64_t begin = 0;
  for (int64_t end : cuts_of(tensors, most, options.align)) {
    auto lightest = std::min_element(load.begin(), load.end());
    ranges_.push_back({begin, end - begin, static_cast<int>(lightest - load.begin())});
    *lightest += end - begin;
    begin = end;
  }
  if (ranges_.empty()) throw ConfigError("there are no parameters to distribute over servers.");
}

int64_t Sharding::elements_of(int server) const {
  int64_t sum = 0;
  for (const Range& range : ranges_) sum += range.server == server ? range.count : 0;
  return sum;
}

size_t Sharding::range_at(int64_t element) const {
  YOKE_CHECK(element >= 0 && element < elements(), "element {} of {}", element, elements());
  auto after = std::upper_bound(ranges_.begin(), ranges_.end(), element,
                                [](int64_t value, const Range& range) { return value < range.begin; });
  return static_cast<size_t>(after - ranges_.begin()) - 1;
}

}  // namespace yoke::ps
