#include "cli/plan_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "cli/output.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/log.h"
#include "yoke/base/text.h"
#include "yoke/base/units.h"
#include "yoke/plan/pipeline/planner.h"
#include "yoke/report/table.h"

namespace yoke::cli {
namespace {

using plan::PipelinePlan;
using plan::PipelineStage;

constexpr int kExplainedStages = 6;

// Per-device values of --cluster, --speeds and a list of --memory; empty: all devices are equal.
std::vector<plan::PlanDevice> devices_of(const PlanArguments& arguments, const cluster::Topology& cluster) {
  std::vector<plan::PlanDevice> devices;
  for (int worker : cluster::workers_of(cluster)) {
    const cluster::Device& device = cluster.devices[static_cast<size_t>(worker)];
    devices.push_back({device.speed, device.memory > 0 ? device.memory : plan::PlanDevice{}.memory});
  }
  if (std::all_of(devices.begin(), devices.end(), [](const auto& d) { return d == plan::PlanDevice{}; }))
    devices.clear();
  std::vector<std::string> speeds, memories;
  if (!arguments.speeds.empty()) speeds = split(arguments.speeds, ',');
  if (arguments.memory.find(',') != std::string::npos) memories = split(arguments.memory, ',');
  if (!speeds.empty() && !memories.empty() && speeds.size() != memories.size())
    throw ConfigError("{} in --speeds and {} in --memory: expected one of each per device.", speeds.size(),
                      memories.size());
  devices.resize(std::max({devices.size(), speeds.size(), memories.size()}));
  for (size_t i = 0; i < speeds.size(); ++i) {
    auto [end, error] =
        std::from_chars(speeds[i].data(), speeds[i].data() + speeds[i].size(), devices[i].speed);
    if (error != std::errc() || end != speeds[i].data() + speeds[i].size() || !(devices[i].speed > 0))
      throw ConfigError("--speeds {}: expected numbers above 0, one for each device: 1,1,0.5.",
                        arguments.speeds);
  }
  for (size_t i = 0; i < memories.size(); ++i) {
    auto bytes = parse_bytes(memories[i]);
    if (!bytes || *bytes == 0)
      throw ConfigError("--memory {}: expected sizes, one for all or one for each device: 12GB,6GB.",
                        arguments.memory);
    devices[i].memory = static_cast<double>(*bytes);
  }
  return devices;
}

std::vector<plan::Level> levels_of(const PlanArguments& arguments, const cluster::Topology& cluster,
                                   const std::vector<plan::PlanDevice>& devices) {
  int ways = (arguments.cluster.empty() ? 0 : 1) + (arguments.levels.empty() ? 0 : 1) +
             (arguments.devices != 0 || !arguments.bandwidth.empty() ? 1 : 0);
  if (ways != 1)
    throw ConfigError(
        "describe the devices in one way only: --devices N --bandwidth B, or --levels LIST, or --cluster "
        "FILE.");
  if (!arguments.cluster.empty())
    return devices.empty() ? plan::levels_of(cluster) : plan::one_level_of(cluster);
  if (!arguments.levels.empty()) return plan::parse_levels(arguments.levels);
  if (arguments.devices < 1 || arguments.devices > 1'000'000)
    throw ConfigError("--devices {}: expected an integer from 1 to 1000000.", arguments.devices);
  auto rate = parse_rate(arguments.bandwidth);
  if (arguments.bandwidth.empty() && arguments.devices == 1) rate = 1.0;  // no link is used
  if (!rate || !(*rate > 0))
    throw ConfigError("--bandwidth {}: expected a rate such as 10gbit or 1.25GB/s.", arguments.bandwidth);
  return {{static_cast<int>(arguments.devices), *rate}};
}

bool activation_cost_of(const PlanArguments& arguments, const plan::CostModel& model) {
  if (arguments.activation_cost.empty()) return model.activation_cost;
  if (arguments.activation_cost == "on") return true;
  if (arguments.activation_cost == "off") return false;
  throw ConfigError("--activation-cost {}: unknown. Accepted: on off.", arguments.activation_cost);
}

plan::PlanOptions options_of(const PlanArguments& arguments) {
  plan::PlanOptions options;
  cluster::Topology cluster;
  if (!arguments.cluster.empty()) cluster = cluster::read_topology(arguments.cluster);
  options.devices = devices_of(arguments, cluster);
  auto as_first = [&](const plan::PlanDevice& device) { return device == options.devices.front(); };
  if (std::all_of(options.devices.begin(), options.devices.end(), as_first) && !options.devices.empty() &&
      options.devices.front().speed == 1) {
    options.memory = options.devices.front().memory;
    options.devices.clear();
  }
  options.levels = levels_of(arguments, cluster, options.devices);
  options.model = &plan::cost_model(arguments.cost_model);
  options.activation_cost = activation_cost_of(arguments, *options.model);
  options.straight = arguments.straight;
  options.fewer_devices = arguments.fewer_devices;
  if (!arguments.memory.empty() && arguments.memory.find(',') == std::string::npos) {
    auto bytes = parse_bytes(arguments.memory);
    if (!bytes || *bytes == 0)
      throw ConfigError("--memory {}: expected a size such as 12GB.", arguments.memory);
    options.memory = std::min(options.memory, static_cast<double>(*bytes));
  }
  return options;
}

plan::Cuts cuts_of(const PlanArguments& arguments) {
  if (arguments.states != "prefix" && arguments.states != "antichain")
    throw ConfigError("--states {}: unknown. Accepted: prefix antichain.", arguments.states);
  if (!(arguments.batch_factor > 0 && arguments.batch_factor < 1e9))
    throw ConfigError("--batch-factor {}: expected a number above 0.", arguments.batch_factor);
  plan::Profile profile = plan::scaled(plan::read_profile(arguments.profile), arguments.batch_factor);
  return arguments.states == "prefix" ? plan::prefix_cuts(profile) : plan::antichain_cuts(profile);
}

// Names of the first and last layers, short enough for a table.
std::string layers_of(const PipelineStage& stage, const plan::Cuts& cuts) {
  if (!stage.layers.empty()) return fmt::format("{} layers", stage.layers.size());
  auto name = [&](int layer) {
    std::string text = cuts.names[static_cast<size_t>(layer)];
    return text.substr(0, std::min<size_t>(text.find('('), 16));
  };
  return stage.first == stage.last ? name(stage.first) : name(stage.first) + " … " + name(stage.last);
}

std::string milliseconds(double seconds) {
  return fmt::format("{:.3f}", seconds * 1e3);
}

void print_stages(const PipelinePlan& plan, const plan::Cuts& cuts, bool explain) {
  std::vector<std::string> heads = {"stage",      "layers",  "",         "replicas",
                                    "compute ms", "sync ms", "versions", "memory"};
  const bool unequal = !plan.stages.front().devices.empty();
  if (unequal) heads.insert(heads.end(), {"devices", "slowest"});
  if (explain) heads.insert(heads.end(), {"cut ms", "ms a minibatch", "bound by"});
  report::Table table(heads);
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const PipelineStage& stage = plan.stages[i];
    std::vector<std::string> cells = {std::to_string(i),
                                      fmt::format("{}-{}", stage.first, stage.last),
                                      layers_of(stage, cuts),
                                      std::to_string(stage.replicas),
                                      milliseconds(stage.compute_seconds),
                                      milliseconds(stage.sync_seconds),
                                      std::to_string(stage.versions),
                                      format_bytes(stage.memory_bytes)};
    if (unequal) {
      std::vector<std::string> devices;
      for (int device : stage.devices) devices.push_back(std::to_string(device));
      cells.insert(cells.end(), {join(devices, " "), fmt::format("{:g}x", stage.slowest)});
    }
    if (explain) {
      double seconds = std::max(stage.seconds, stage.transfer_seconds);
      bool slowest = seconds >= plan.bottleneck_seconds * (1 - 1e-9);
      cells.insert(cells.end(), {milliseconds(stage.transfer_seconds), milliseconds(seconds),
                                 stage.bound + (slowest ? ", the bottleneck" : "")});
    }
    table.add(cells);
  }
  fmt::print("{}", table.to_text(table_columns()));
}

void print_plan(const PipelinePlan& plan, const plan::Cuts& cuts, bool explain) {
  fmt::print("{}: one minibatch every {} ms under {}\n", plan.config, milliseconds(plan.bottleneck_seconds),
             plan.cost_model);
  fmt::print("{:.2f}x one device ({} ms), {:.2f}x data parallelism ({} ms), {:.1f} % of its traffic saved\n",
             plan.speedup_over_one, milliseconds(plan.one_device_seconds), plan.speedup_over_data_parallel,
             milliseconds(plan.data_parallel_seconds), 100 * plan.communication_saved);
  fmt::print(
      "{} minibatch{} in flight per replica of the first stage\n"
      "\n",
      plan.noam, plan.noam == 1 ? "" : "es");
  if (!plan.exact)
    fmt::print(
        "too many kinds of devices for the exact search: a heuristic was used\n"
        "\n");
  print_stages(plan, cuts, explain);
}

void print_others(const PipelinePlan& best, const std::vector<PipelinePlan>& others) {
  report::Table table({"stages", "best plan", "ms a minibatch", "slower by"});
  for (const PipelinePlan& other : others) {
    double slower = other.bottleneck_seconds / best.bottleneck_seconds - 1;
    auto parts = 1 + std::count(other.config.begin(), other.config.end(), '-');
    table.add({std::to_string(parts), other.config, milliseconds(other.bottleneck_seconds),
               slower < 1e-9 ? "(the best)" : fmt::format("{:.1f} %", 100 * slower)});
  }
  fmt::print(
      "\n"
      "Best plan for each number of stages:\n"
      "{}",
      table.to_text(table_columns()));
}

// Leaving part of a machine idle is better than a slow synchronisation among many.
void hint_at_fewer(const plan::Cuts& cuts, plan::PlanOptions options, const PipelinePlan& plan) {
  if (options.fewer_devices || !options.model->volume_per_replica_rises) return;
  options.fewer_devices = true;
  PipelinePlan fewer = plan::make_plan(cuts, options);
  if (fewer.bottleneck_seconds < plan.bottleneck_seconds * (1 - 1e-9))
    log::info("{} of the {} devices would be faster ({} ms): --fewer-devices", fewer.devices_used,
              plan.devices_used, milliseconds(fewer.bottleneck_seconds));
}

nlohmann::json document(const PipelinePlan& plan, const std::vector<PipelinePlan>& others) {
  nlohmann::json out = nlohmann::json::parse(plan::to_json(plan));
  for (const PipelinePlan& other : others)
    out["runners_up"].push_back({{"config", other.config}, {"bottleneck_seconds", other.bottleneck_seconds}});
  return out;
}

}  // namespace

int plan_pipeline(const CommandLine& line) {
  const PlanArguments& arguments = line.plan;
  plan::PlanOptions options = options_of(arguments);
  plan::Cuts cuts = cuts_of(arguments);
  PipelinePlan plan = plan::make_plan(cuts, options);
  std::vector<PipelinePlan> others;
  if (arguments.explain)
    others = plan::plans_by_stages(cuts, options, std::min(kExplainedStages, cuts.count()));
  if (!arguments.output.empty()) write_file_atomically(arguments.output, plan::to_json(plan));
  if (line.json) {
    print_json(document(plan, others));
    return 0;
  }
  print_plan(plan, cuts, arguments.explain);
  if (!others.empty()) print_others(plan, others);
  if (!line.quiet) hint_at_fewer(cuts, options, plan);
  return 0;
}

}  // namespace yoke::cli
