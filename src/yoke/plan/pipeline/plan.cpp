#include "yoke/plan/pipeline/plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/json_text.h"
#include "yoke/plan/pipeline/json_reader.h"

namespace yoke::plan {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

ordered_json stage_json(const PipelineStage& stage) {
  ordered_json out = {{"first", stage.first},
                      {"last", stage.last},
                      {"replicas", stage.replicas},
                      {"forward_seconds", stage.forward_seconds},
                      {"compute_seconds", stage.compute_seconds},
                      {"sync_seconds", stage.sync_seconds},
                      {"transfer_seconds", stage.transfer_seconds},
                      {"seconds", stage.seconds},
                      {"weight_bytes", stage.weight_bytes},
                      {"output_bytes", stage.output_bytes},
                      {"memory_bytes", stage.memory_bytes},
                      {"versions", stage.versions},
                      {"bound", stage.bound}};
  if (!stage.layers.empty()) out["layers"] = stage.layers;
  if (!stage.devices.empty()) {
    out["devices"] = stage.devices;
    out["slowest"] = stage.slowest;
  }
  return out;
}

PipelineStage read_stage(const json& value, const std::string& where) {
  JsonReader reader(value, where);
  PipelineStage stage;
  auto small = [&](const char* key) {
    int64_t count = reader.count(key);
    if (count > 1'000'000) reader.refuse(key, "an integer up to 1000000");
    return static_cast<int>(count);
  };
  stage.first = small("first");
  stage.last = small("last");
  stage.replicas = small("replicas");
  stage.compute_seconds = reader.number("compute_seconds");
  stage.forward_seconds = reader.number("forward_seconds", stage.compute_seconds / 3);
  stage.sync_seconds = reader.number("sync_seconds", 0.0);
  stage.transfer_seconds = reader.number("transfer_seconds", 0.0);
  stage.seconds = reader.number("seconds", 0.0);
  stage.weight_bytes = reader.number("weight_bytes", 0.0);
  stage.output_bytes = reader.number("output_bytes", 0.0);
  stage.memory_bytes = reader.number("memory_bytes", 0.0);
  stage.versions = reader.count("versions", 1);
  stage.bound = reader.text("bound", "");
  stage.slowest = reader.number("slowest", 1.0);
  auto numbers = [&](const char* key, const char* accepted, std::vector<int>& list) {
    if (!reader.has(key)) return;
    for (const json& number : reader.array(key)) {
      if (!number.is_number_unsigned() || number.get<double>() > 1e6) reader.refuse(key, accepted);
      list.push_back(number.get<int>());
    }
  };
  numbers("layers", "a list of layer numbers", stage.layers);
  numbers("devices", "a list of device numbers", stage.devices);
  return stage;
}

void check_stage(const PipelineStage& stage, int expected_first, bool prefix, const std::string& where) {
  if (stage.last < stage.first || (prefix && stage.first != expected_first))
    throw ConfigError(
        "{}: layers {} to {}: the next stage must start at layer {} and have at least one layer.", where,
        stage.first, stage.last, expected_first);
  if (stage.replicas < 1) throw ConfigError("{}: replicas {}: expected at least 1.", where, stage.replicas);
  for (double seconds : {stage.forward_seconds, stage.compute_seconds - stage.forward_seconds,
                         stage.sync_seconds, stage.transfer_seconds}) {
    if (!(seconds >= -1e-12 && seconds <= 1e15))
      throw ConfigError(
          "{}: forward, compute, sync and transfer seconds must be at least 0, and forward no more "
          "than compute.",
          where);
  }
}

}  // namespace

std::vector<int64_t> versions_of(const std::vector<int>& replicas) {
  int64_t left = 0;
  for (int r : replicas) left += r;
  std::vector<int64_t> versions;
  for (int r : replicas) {
    versions.push_back((left - 1) / r + 1);
    left -= r;
  }
  return versions;
}

std::string to_json(const PipelinePlan& plan) {
  ordered_json out = {{"cost_model", plan.cost_model},
                      {"states", plan.states},
                      {"activation_cost", plan.activation_cost},
                      {"overlaps", plan.overlaps},
                      {"levels", ordered_json::array()},
                      {"config", plan.config},
                      {"bottleneck_seconds", plan.bottleneck_seconds},
                      {"stages", ordered_json::array()},
                      {"devices_used", plan.devices_used},
                      {"noam", plan.noam},
                      {"one_device_seconds", plan.one_device_seconds},
                      {"data_parallel_seconds", plan.data_parallel_seconds},
                      {"speedup_over_one", plan.speedup_over_one},
                      {"speedup_over_data_parallel", plan.speedup_over_data_parallel},
                      {"communication_saved", plan.communication_saved}};
  if (!plan.exact) out["exact"] = false;
  for (const Level& level : plan.levels)
    out["levels"].push_back({{"count", level.count}, {"bandwidth", level.bandwidth}});
  for (const PipelineStage& stage : plan.stages) out["stages"].push_back(stage_json(stage));
  return out.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

PipelinePlan parse_plan(std::string_view text, const std::string& file_name) {
  json document = parse_json(text, file_name);
  JsonReader reader(document, file_name);
  PipelinePlan plan;
  plan.cost_model = reader.text("cost_model", "ring");
  plan.states = reader.text("states", "prefix");
  plan.activation_cost = reader.truth("activation_cost", true);
  plan.overlaps = reader.truth("overlaps", true);
  plan.exact = reader.truth("exact", true);
  plan.config = reader.text("config", "");
  plan.bottleneck_seconds = reader.number("bottleneck_seconds", 0.0);
  plan.devices_used = reader.count("devices_used", 0);
  plan.noam = reader.count("noam", 1);
  plan.one_device_seconds = reader.number("one_device_seconds", 0.0);
  plan.data_parallel_seconds = reader.number("data_parallel_seconds", 0.0);
  plan.speedup_over_one = reader.number("speedup_over_one", 1.0);
  plan.speedup_over_data_parallel = reader.number("speedup_over_data_parallel", 1.0);
  plan.communication_saved = reader.number("communication_saved", 0.0);
  if (reader.has("levels")) {
    for (const json& value : reader.array("levels")) {
      JsonReader level(value, file_name + ": levels");
      plan.levels.push_back(
          {static_cast<int>(std::min<int64_t>(level.count("count"), 1'000'000)), level.number("bandwidth")});
    }
  }
  const json& stages = reader.array("stages");
  if (stages.empty()) reader.refuse("stages", "at least one stage");
  for (size_t i = 0; i < stages.size(); ++i) {
    std::string where = fmt::format("{}: stages[{}]", file_name, i);
    int expected = plan.stages.empty() ? 0 : plan.stages.back().last + 1;
    plan.stages.push_back(read_stage(stages[i], where));
    check_stage(plan.stages.back(), expected, plan.states == "prefix", where);
  }
  return plan;
}

}  // namespace yoke::plan
