#include "yoke/plan/collectives/phases.h"

#include <algorithm>
#include <numeric>

#include "yoke/base/error.h"

namespace yoke::plan {
namespace {

// A tiny piece of a huge buffer would make the list longer than the data.
constexpr int64_t kMostPieces = 4096;

}  // namespace

Members::Members(std::vector<int> ranks, int rank) : ranks_(std::move(ranks)) {
  auto found = std::find(ranks_.begin(), ranks_.end(), rank);
  if (found != ranks_.end()) me_ = static_cast<int>(found - ranks_.begin());
}

Members members_from(int first, int stride, int count, int rank) {
  std::vector<int> ranks(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) ranks[static_cast<size_t>(i)] = first + i * stride;
  return {std::move(ranks), rank};
}

Members members_around(int first, int size, int rank) {
  std::vector<int> ranks(static_cast<size_t>(size));
  for (int i = 0; i < size; ++i) ranks[static_cast<size_t>(i)] = (first + i) % size;
  return {std::move(ranks), rank};
}

std::vector<Step> StepWriter::in_order() && {
  std::stable_sort(steps_.begin(), steps_.end(),
                   [](const Step& a, const Step& b) { return a.round < b.round; });
  return std::move(steps_);
}

Range part_of(int64_t count, int part, int size) {
  // count * part may overflow; quotient and remainder do not.
  auto cut = [&](int at) { return count / size * at + count % size * at / size; };
  return {cut(part), cut(part + 1) - cut(part)};
}

Blocks equal_blocks(Range range, int parts) {
  Blocks blocks(static_cast<size_t>(parts));
  for (int p = 0; p < parts; ++p) {
    Range part = part_of(range.count, p, parts);
    blocks[static_cast<size_t>(p)] = {range.begin + part.begin, part.count};
  }
  return blocks;
}

Blocks part_blocks(const CollectiveRequest& request) {
  if (request.parts.empty()) return equal_blocks(whole(request), request.size);
  Blocks blocks;
  int64_t begin = 0;
  for (int64_t count : request.parts) {
    blocks.push_back({begin, count});
    begin += count;
  }
  return blocks;
}

Blocks pieces_of(Range range, int64_t piece) {
  int64_t pieces = range.count / piece + (range.count % piece != 0);
  return equal_blocks(range, static_cast<int>(std::clamp<int64_t>(pieces, 1, kMostPieces)));
}

Range span_of(const Blocks& blocks, int first, int count) {
  const Range& last = blocks[static_cast<size_t>(first + count - 1)];
  int64_t begin = blocks[static_cast<size_t>(first)].begin;
  return {begin, last.begin + last.count - begin};
}

Traffic traffic_of(const std::vector<Step>& steps) {
  Traffic traffic;
  for (const Step& step : steps) {
    traffic.rounds = std::max(traffic.rounds, step.round + 1);
    if (step.action != Action::kSend) continue;
    traffic.elements_sent += step.range.count;
    ++traffic.messages_sent;
  }
  return traffic;
}

}  // namespace yoke::plan
