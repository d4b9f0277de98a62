#include "yoke/metrics/partition_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "yoke/base/error.h"
#include "yoke/base/json_text.h"
#include "yoke/metrics/json_fields.h"

namespace yoke::metrics {
namespace {

using nlohmann::json;

constexpr int64_t kMostParts = 100'000, kMostNodes = 1'000'000, kMostBytes = int64_t{1} << 60;
constexpr double kLongest = 1e12;  // seconds

// Fields of one object of the file, each within a range.
class Ranged {
 public:
  Ranged(const json& value, std::string where) : fields_(value, where), where_(std::move(where)) {}

  int64_t count(const char* key, int64_t low, int64_t high) const {
    const int64_t value = fields_.count(key);
    if (value < low || value > high)
      throw ConfigError("{}: {} = {}: expected an integer from {} to {}.", where_, key, value, low, high);
    return value;
  }
  int number(const char* key, int64_t below) const { return static_cast<int>(count(key, 0, below - 1)); }
  double seconds(const char* key) const {
    const double value = fields_.number(key);
    if (!(std::abs(value) <= kLongest))
      throw ConfigError("{}: {} = {}: expected seconds.", where_, key, value);
    return value;
  }
  std::string text(const char* key) const { return fields_.text(key); }
  const json& array(const char* key) const { return fields_.array(key); }

 private:
  JsonFields fields_;
  std::string where_;
};

template <class Read>
void each(const Ranged& document, const char* key, const std::string& file_name, Read read) {
  const json& list = document.array(key);
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string where = fmt::format("{}: {}[{}]", file_name, key, i);
    read(list[i], where);
  }
}

std::pair<int, int> read_edge(const json& value, int64_t nodes, const std::string& where) {
  if (value.is_array() && value.size() == 2) {
    auto from = as_count(value[0]), to = as_count(value[1]);
    if (from && to && *from < *to && *to < nodes) return {static_cast<int>(*from), static_cast<int>(*to)};
  }
  throw ConfigError("{}: expected [from, to], from a node to a later one.", where);
}

}  // namespace

int64_t PartitionRun::cut_bytes() const {
  int64_t bytes = 0;
  for (const Crossing& one : crossings) bytes += one.bytes;
  return bytes;
}

std::string to_json(const PartitionRun& run) {
  json nodes = json::array(), edges = json::array(), crossings = json::array(), events = json::array();
  for (const PartitionRun::Node& one : run.nodes)
    nodes.push_back(
        {{"name", one.name}, {"part", one.part}, {"forward", one.forward}, {"backward", one.backward}});
  for (auto [from, to] : run.edges) edges.push_back({from, to});
  for (const PartitionRun::Crossing& one : run.crossings)
    crossings.push_back({{"node", one.node},
                         {"part", one.part},
                         {"bytes", one.bytes},
                         {"gradient_bytes", one.gradient_bytes}});
  for (const PartitionRun::Event& one : run.events)
    events.push_back({{"rank", one.rank},
                      {"kind", one.kind == SpanKind::kBackward ? "backward" : "forward"},
                      {"node", one.node},
                      {"start", one.start},
                      {"end", one.end}});
  json document = {{"parts", run.parts}, {"replicas", run.replicas}, {"nodes", nodes},
                   {"edges", edges},     {"crossings", crossings},   {"cut_bytes", run.cut_bytes()},
                   {"events", events}};
  return document.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

PartitionRun parse_partition_run(std::string_view text, const std::string& file_name) {
  json document = parse_json(text, file_name);
  Ranged fields(document, file_name);
  PartitionRun run;
  run.parts = static_cast<int>(fields.count("parts", 1, kMostParts));
  run.replicas = static_cast<int>(fields.count("replicas", 1, kMostParts));
  each(fields, "nodes", file_name, [&](const json& value, const std::string& where) {
    Ranged node(value, where);
    run.nodes.push_back({node.text("name"), node.number("part", run.parts), node.seconds("forward"),
                         node.seconds("backward")});
  });
  const auto nodes = static_cast<int64_t>(run.nodes.size());
  if (nodes == 0 || nodes > kMostNodes)
    throw ConfigError("{}: {} nodes: expected 1 to {}.", file_name, nodes, kMostNodes);
  each(fields, "edges", file_name, [&](const json& value, const std::string& where) {
    run.edges.push_back(read_edge(value, nodes, where));
  });
  each(fields, "crossings", file_name, [&](const json& value, const std::string& where) {
    Ranged one(value, where);
    run.crossings.push_back({one.number("node", nodes), one.number("part", run.parts),
                             one.count("bytes", 0, kMostBytes / (nodes + 1)),
                             one.count("gradient_bytes", 0, kMostBytes / (nodes + 1))});
  });
  each(fields, "events", file_name, [&](const json& value, const std::string& where) {
    Ranged one(value, where);
    const std::string kind = one.text("kind");
    if (kind != "forward" && kind != "backward")
      throw ConfigError("{}: kind `{}` is unknown. Accepted: forward backward.", where, kind);
    run.events.push_back({one.number("rank", kMostParts), one.number("node", nodes),
                          kind == "forward" ? SpanKind::kForward : SpanKind::kBackward, one.seconds("start"),
                          one.seconds("end")});
    if (!(run.events.back().end >= run.events.back().start))
      throw ConfigError("{}: it ends before it starts.", where);
  });
  return run;
}

Timeline timeline_of(const PartitionRun& run) {
  Timeline timeline;
  timeline.name = "measured";
  double first = 0;
  for (const PartitionRun::Event& one : run.events)
    first = &one == run.events.data() ? one.start : std::min(first, one.start);
  for (const PartitionRun::Event& one : run.events) {
    for (int rank = static_cast<int>(timeline.rows.size()); rank <= one.rank; ++rank)
      timeline.rows.push_back(fmt::format("rank {}", rank));
    timeline.spans.push_back({one.rank, one.kind, one.node, 0, one.start - first, one.end - first});
    timeline.makespan = std::max(timeline.makespan, one.end - first);
  }
  return timeline;
}

}  // namespace yoke::metrics
