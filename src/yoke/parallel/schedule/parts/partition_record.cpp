#include "yoke/parallel/schedule/parts/partition_record.h"

#include <algorithm>
#include <cmath>

#include "yoke/base/clock.h"
#include "yoke/parallel/common/gather_json.h"

namespace yoke::parallel {
namespace {

using nlohmann::json;

// Ranks of one machine have one clock; others' differ by more than this.
constexpr double kOneClockSeconds = 1;

json own_record(const PipelineStage& stage, const PartRunner& runner, double now) {
  json events = json::array(), sent = json::array(), back = json::array();
  for (const NodeEvent& one : runner.events()) events.push_back({one.node, one.backward, one.start, one.end});
  for (const CutEdge& one : runner.sent()) sent.push_back({one.node, one.part, one.bytes});
  for (const CutEdge& one : runner.sent_back()) back.push_back({one.node, stage.place.stage, one.bytes});
  return {{"now", now},
          {"part", stage.place.stage},
          {"copy", stage.place.copy},
          {"events", events},
          {"sent", sent},
          {"back", back}};
}

json nodes_of(const GraphParts& parts, const json& ranks) {
  json nodes = json::array();
  for (size_t i = 0; i < parts.graph.nodes.size(); ++i)
    nodes.push_back({{"name", parts.graph.nodes[i].name},
                     {"part", parts.part_of[i]},
                     {"forward", 0.0},
                     {"backward", 0.0}});
  for (const json& rank : ranks)
    for (const json& one : rank["events"])
      if (rank["copy"] == 0)
        nodes[one[0].get<size_t>()][one[1].get<bool>() ? "backward" : "forward"] =
            one[3].get<double>() - one[2].get<double>();
  return nodes;
}

json crossings_of(const json& ranks) {
  json crossings = json::array();
  auto entry = [&](const json& node, const json& part) -> json& {
    for (json& one : crossings)
      if (one["node"] == node && one["part"] == part) return one;
    crossings.push_back({{"node", node}, {"part", part}, {"bytes", 0}, {"gradient_bytes", 0}});
    return crossings.back();
  };
  for (const json& rank : ranks) {
    if (rank["copy"] != 0) continue;
    for (const json& one : rank["sent"]) entry(one[0], one[1])["bytes"] = one[2];
    for (const json& one : rank["back"]) entry(one[0], one[1])["gradient_bytes"] = one[2];
  }
  return crossings;
}

// In seconds from the first event; clocks of other machines are moved to the first rank's.
json events_of(const json& ranks, double& makespan) {
  json events = json::array();
  double first = INFINITY, last = -INFINITY;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    double ahead = ranks[rank]["now"].get<double>() - ranks[0]["now"].get<double>();
    if (std::abs(ahead) < kOneClockSeconds) ahead = 0;
    for (const json& one : ranks[rank]["events"]) {
      const double start = one[2].get<double>() - ahead, end = one[3].get<double>() - ahead;
      first = std::min(first, start);
      last = std::max(last, end);
      events.push_back({{"rank", rank},
                        {"part", ranks[rank]["part"]},
                        {"kind", one[1].get<bool>() ? "backward" : "forward"},
                        {"node", one[0]},
                        {"start", start},
                        {"end", end}});
    }
  }
  for (json& one : events) {
    one["start"] = one["start"].get<double>() - first;
    one["end"] = one["end"].get<double>() - first;
  }
  makespan = events.empty() ? 0 : last - first;
  return events;
}

}  // namespace

json partition_record(const GraphParts& parts, const PipelineStage& stage, const PartRunner& runner) {
  stage.world.barrier().wait();
  json ranks = gather_json(own_record(stage, runner, now_seconds()), &stage.world);
  json edges = json::array();
  for (auto [from, to] : parts.graph.edges()) edges.push_back({from, to});
  json crossings = crossings_of(ranks);
  int64_t cut = 0;
  for (const json& one : crossings) cut += one["bytes"].get<int64_t>();
  double makespan = 0;
  json events = events_of(ranks, makespan);
  return {{"parts", parts.parts},
          {"replicas", stage.layout.copies},
          {"nodes", nodes_of(parts, ranks)},
          {"edges", edges},
          {"crossings", crossings},
          {"cut_bytes", cut},
          {"makespan", makespan},
          {"events", events}};
}

}  // namespace yoke::parallel
