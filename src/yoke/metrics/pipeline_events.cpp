#include "yoke/metrics/pipeline_events.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "yoke/base/error.h"
#include "yoke/metrics/json_fields.h"

namespace yoke::metrics {
namespace {

using nlohmann::json;

constexpr int64_t kMostRanks = 100'000, kMostMicrobatches = 10'000'000;
constexpr size_t kMostEvents = 5'000'000;

int count_between(const JsonFields& fields, const char* key, int64_t low, int64_t high,
                  const std::string& where) {
  int64_t value = fields.count(key);
  if (value < low || value > high)
    throw ConfigError("{}: {} = {}: expected an integer from {} to {}.", where, key, value, low, high);
  return static_cast<int>(value);
}

SpanKind kind_of(const std::string& name, const std::string& where) {
  for (SpanKind kind : {SpanKind::kForward, SpanKind::kBackward, SpanKind::kWeight, SpanKind::kUpdate,
                        SpanKind::kSend, SpanKind::kReceive})
    if (name == to_string(kind)) return kind;
  if (name == "send_grad") return SpanKind::kSend;
  if (name == "recv_grad") return SpanKind::kReceive;
  throw ConfigError("{}: kind `{}` is unknown. Accepted: F B W update send recv.", where, name);
}

PipelineEvent read_event(const json& value, const PipelineEvents& all, const std::string& where) {
  JsonFields fields(value, where);
  PipelineEvent event;
  event.rank = count_between(fields, "rank", 0, kMostRanks, where);
  const int place = count_between(fields, "stage", 0, int64_t{all.stages} * all.chunks - 1, where);
  event.stage = place % all.stages;
  event.chunk =
      fields.has("chunk") ? count_between(fields, "chunk", 0, all.chunks - 1, where) : place / all.stages;
  event.kind = kind_of(fields.text("kind"), where);
  event.microbatch = count_between(fields, "microbatch", 0, kMostMicrobatches, where);
  event.start = fields.number("start");
  event.end = fields.number("end");
  if (!(std::abs(event.start) <= 1e12) || !(event.end >= event.start) || !(event.end <= 1e12))
    throw ConfigError("{}: from {} to {} s: expected an end after the start.", where, event.start, event.end);
  return event;
}

void read_replicas(const JsonFields& fields, PipelineEvents& out, const std::string& file_name) {
  if (!fields.has("replicas")) return;
  const json& list = fields.array("replicas");
  for (const json& value : list) {
    std::optional<int64_t> count = as_count(value);
    if (!count || *count < 1 || *count > kMostRanks)
      throw ConfigError("{}: replicas: expected integers of at least 1, one for each stage.", file_name);
    out.replicas.push_back(static_cast<int>(*count));
  }
  if (!out.replicas.empty() && out.replicas.size() != static_cast<size_t>(out.stages))
    throw ConfigError("{}: {} replica counts for {} stages.", file_name, out.replicas.size(), out.stages);
}

// Numbers micro-batches continuously: the n-th time a rank does the same pass belongs to minibatch n.
void count_through(PipelineEvents& events) {
  int highest = 0;
  for (const PipelineEvent& event : events.events) highest = std::max(highest, event.microbatch);
  if (highest >= events.microbatches) return;
  std::map<std::tuple<int, int, SpanKind, int>, int64_t> seen;
  for (PipelineEvent& event : events.events) {
    int64_t before = seen[{event.rank, event.chunk, event.kind, event.microbatch}]++;
    int64_t number = before * events.microbatches + event.microbatch;
    event.microbatch = static_cast<int>(std::min<int64_t>(number, std::numeric_limits<int>::max()));
  }
}

// If the ranks of every stage have each micro-batch once, they share them.
void find_replicas(PipelineEvents& events) {
  if (!events.replicas.empty()) return;
  std::map<int, std::set<int>> ranks;            // of each stage
  std::set<std::tuple<int, int, int>> forwards;  // stage, chunk, micro-batch
  for (const PipelineEvent& event : events.events) {
    ranks[event.stage].insert(event.rank);
    if (event.kind == SpanKind::kForward &&
        !forwards.insert({event.stage, event.chunk, event.microbatch}).second)
      return;
  }
  for (int stage = 0; stage < events.stages; ++stage)
    events.replicas.push_back(std::max(1, static_cast<int>(ranks[stage].size())));
  if (std::all_of(events.replicas.begin(), events.replicas.end(), [](int count) { return count == 1; }))
    events.replicas.clear();
}

}  // namespace

std::string to_json(const PipelineEvents& events) {
  nlohmann::ordered_json out = {
      {"schedule", events.schedule}, {"stages", events.stages}, {"microbatches", events.microbatches}};
  if (!events.replicas.empty()) out["replicas"] = events.replicas;
  if (events.chunks > 1) out["chunks"] = events.chunks;
  out["events"] = nlohmann::ordered_json::array();
  for (const PipelineEvent& event : events.events) {
    out["events"].push_back({{"rank", event.rank},
                             {"stage", event.stage},
                             {"kind", to_string(event.kind)},
                             {"microbatch", event.microbatch},
                             {"chunk", event.chunk},
                             {"start", event.start},
                             {"end", event.end}});
  }
  return out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

PipelineEvents parse_pipeline_events(std::string_view text, const std::string& file_name) {
  json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded())
    throw ConfigError("{}: not valid JSON. A pipeline run writes it; is it truncated?", file_name);
  JsonFields fields(document, file_name);
  PipelineEvents out;
  out.schedule = fields.text("schedule");
  out.stages = count_between(fields, "stages", 1, kMostRanks, file_name);
  out.microbatches = count_between(fields, "microbatches", 1, kMostMicrobatches, file_name);
  if (fields.has("chunks")) out.chunks = count_between(fields, "chunks", 1, 1024, file_name);
  read_replicas(fields, out, file_name);
  const json& list = fields.array("events");
  if (list.empty() || list.size() > kMostEvents)
    throw ConfigError("{}: {} events: expected 1 to {}.", file_name, list.size(), kMostEvents);
  for (size_t i = 0; i < list.size(); ++i)
    out.events.push_back(read_event(list[i], out, fmt::format("{}: events[{}]", file_name, i)));
  std::stable_sort(out.events.begin(), out.events.end(), [](const PipelineEvent& a, const PipelineEvent& b) {
    return std::tie(a.rank, a.start) < std::tie(b.rank, b.start);
  });
  count_through(out);
  find_replicas(out);
  return out;
}

PipelineEvents minibatch_of(const PipelineEvents& events, int number) {
  PipelineEvents out = events;
  std::erase_if(out.events,
                [&](const PipelineEvent& event) { return event.microbatch / events.microbatches != number; });
  for (PipelineEvent& event : out.events) event.microbatch %= events.microbatches;
  return out;
}

int last_minibatch(const PipelineEvents& events) {
  std::map<int, int64_t> backwards;  // of each minibatch
  for (const PipelineEvent& event : events.events)
    if (event.kind == SpanKind::kBackward) ++backwards[event.microbatch / events.microbatches];
  const int64_t all = int64_t{events.microbatches} * events.stages * events.chunks;
  for (auto it = backwards.rbegin(); it != backwards.rend(); ++it)
    if (it->second >= all) return it->first;
  return -1;
}

Timeline timeline_of(const PipelineEvents& events) {
  Timeline timeline;
  std::map<std::pair<int, int>, int> rows;  // stage, rank
  std::map<int, int> ranks;                 // of each stage
  double first = std::numeric_limits<double>::infinity(), last = -first;
  for (const PipelineEvent& event : events.events) {
    if (rows.emplace(std::pair(event.stage, event.rank), 0).second) ++ranks[event.stage];
    timeline.splits_backward |= event.kind == SpanKind::kWeight;
    if (!is_pass(event.kind)) continue;
    first = std::min(first, event.start);
    last = std::max(last, event.end);
  }
  if (!(first <= last)) first = last = 0;  // no passes
  int next = 0, number = 0, stage = -1;
  for (auto& [key, row] : rows) {
    number = key.first == stage ? number + 1 : 0;
    stage = key.first;
    row = next++;
    timeline.rows.push_back(ranks[stage] > 1 ? fmt::format("stage {}.{}", stage, number)
                                             : fmt::format("stage {}", stage));
  }
  for (const PipelineEvent& event : events.events)
    timeline.spans.push_back({rows.at({event.stage, event.rank}), event.kind, event.microbatch, event.chunk,
                              event.start - first, event.end - first});
  timeline.makespan = last - first;
  return timeline;
}

}  // namespace yoke::metrics
