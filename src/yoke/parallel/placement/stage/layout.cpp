#include "yoke/parallel/placement/stage/layout.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::parallel {
namespace {

size_t block_number(const std::string& word, const std::string& text) {
  size_t value = 0;
  auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size())
    throw ConfigError("pipeline.stages = \"{}\": '{}' is not the number of a block. Say \"0-3,4-7\".", text,
                      word);
  return value;
}

BlockRange parse_range(const std::string& word, const std::string& text) {
  size_t dash = word.find('-');
  size_t first = block_number(word.substr(0, dash), text);
  size_t last = dash == std::string::npos ? first : block_number(word.substr(dash + 1), text);
  if (last < first) throw ConfigError("pipeline.stages = \"{}\": {} ends before it begins.", text, word);
  return {first, last + 1};
}

// Four a device, or a few less where the batch then falls into equal parts.
int64_t usual_micro_batches(int devices, int64_t samples) {
  int64_t most = std::min<int64_t>(samples, static_cast<int64_t>(4) * devices);
  for (int64_t parts = most; parts >= devices; --parts)
    if (samples % parts == 0) return parts;
  return most;
}

}  // namespace

int micro_batches(const PipelineOptions& options, int devices, int64_t samples) {
  int64_t wanted = options.microbatches > 0 ? options.microbatches : usual_micro_batches(devices, samples);
  if (wanted > samples)
    throw ConfigError(
        "pipeline.microbatches = {} with data.batch_size = {}: a micro-batch needs a sample at least.",
        wanted, samples);
  return static_cast<int>(wanted);
}

int PipelineLayout::workers() const {
  int count = 0;
  for (int stage = 0; stage < request.stages; ++stage) count += request.replicas_of(stage);
  return count;
}

PipelinePlace PipelineLayout::place_of(int rank) const {
  PipelinePlace place;
  place.copy = rank % copies;
  place.worker = rank / copies;
  int first = 0;
  while (place.worker >= first + request.replicas_of(place.stage))
    first += request.replicas_of(place.stage++);
  place.replica = place.worker - first;
  return place;
}

std::vector<BlockRange> parse_stages(const std::string& text, size_t blocks, size_t parts) {
  std::vector<BlockRange> ranges;
  size_t next = 0;
  for (const std::string& word : split(text, ',')) {
    BlockRange range = parse_range(trim(word), text);
    if (range.first != next)
      throw ConfigError("pipeline.stages = \"{}\": block {} should come next, not {}.", text, next,
                        range.first);
    next = range.end;
    ranges.push_back(range);
  }
  if (next != blocks)
    throw ConfigError("pipeline.stages = \"{}\" ends at block {}; the model has blocks 0 to {}.", text,
                      next - 1, blocks - 1);
  if (ranges.size() != parts)
    throw ConfigError("pipeline.stages = \"{}\" has {} ranges; {} are needed, one for each stage and chunk.",
                      text, ranges.size(), parts);
  return ranges;
}

std::vector<BlockRange> balanced_stages(const std::vector<double>& costs, size_t parts) {
  const size_t n = costs.size();
  if (parts < 1 || parts > n)
    throw ConfigError("{} pipeline stages (chunks counted): the model has {} block{}. Use 1 to {}.", parts, n,
                      n == 1 ? "" : "s", n);
  std::vector<double> sums(n + 1);
  for (size_t i = 0; i < n; ++i) sums[i + 1] = sums[i] + costs[i];
  constexpr double kNever = std::numeric_limits<double>::infinity();
  // best[k][j]: the first j blocks in k ranges, with the last range from cut[k][j] on.
  std::vector<std::vector<double>> best(parts + 1, std::vector<double>(n + 1, kNever));
  std::vector<std::vector<size_t>> cut(parts + 1, std::vector<size_t>(n + 1));
  best[0][0] = 0;
  for (size_t k = 1; k <= parts; ++k) {
    for (size_t j = k; j <= n; ++j) {
      for (size_t i = k - 1; i < j; ++i) {
        double worst = std::max(best[k - 1][i], sums[j] - sums[i]);
        if (worst < best[k][j]) {
          best[k][j] = worst;
          cut[k][j] = i;
        }
      }
    }
  }
  std::vector<BlockRange> ranges(parts);
  for (size_t k = parts, end = n; k > 0; end = cut[k][end], --k) ranges[k - 1] = {cut[k][end], end};
  return ranges;
}

PipelineLayout make_layout(const PipelineOptions& options, int stages, int copies,
                           const std::vector<double>& block_costs, int64_t samples,
                           std::vector<int> replicas) {
  PipelineLayout layout;
  layout.copies = copies;
  layout.request.kind = plan::parse_schedule_kind(options.schedule);
  layout.request.stages = stages;
  layout.request.replicas = std::move(replicas);
  bool interleaved = layout.request.kind == plan::ScheduleKind::kInterleaved;
  layout.request.chunks = options.chunks > 0 ? static_cast<int>(options.chunks) : (interleaved ? 2 : 1);
  layout.request.microbatches = micro_batches(options, layout.workers(), samples);
  layout.request.vertical_sync = options.vertical_sync;
  auto parts = static_cast<size_t>(layout.request.virtual_stages());
  layout.blocks = options.stages.empty() ? balanced_stages(block_costs, parts)
                                         : parse_stages(options.stages, block_costs.size(), parts);
  for (int r : layout.request.replicas) {
    bool each = layout.request.kind == plan::ScheduleKind::kPipedream;
    if (each && layout.request.microbatches % r != 0)
      throw ConfigError(
          "pipeline.microbatches = {} with a stage on {} replicas: pipedream gives each as many. Use a "
          "multiple.",
          layout.request.microbatches, r);
  }
  return layout;
}

}  // namespace yoke::parallel
