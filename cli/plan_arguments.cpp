#include "cli/plan_arguments.h"

#include <CLI/CLI.hpp>

namespace yoke::cli {

void describe(CLI::App& command, PlanArguments& a) {
  command.add_option("--profile", a.profile, "a profile (JSON) or PipeDream's graph.txt")->required();
  command.add_option("--devices", a.devices, "how many devices");
  command.add_option("--bandwidth", a.bandwidth, "between any two of them: 10gbit, 1.25GB/s");
  command.add_option("--levels", a.levels, "4@12GB/s,4@1.25GB/s: devices in a machine, then machines");
  command.add_option("--cluster", a.cluster, "cluster.toml, instead of the above");
  command.add_option("--cost-model", a.cost_model, "ring paper2018 paper2019 released")
      ->capture_default_str();
  command.add_option("--memory", a.memory, "of each device: 12GB; where they differ 12GB,12GB,6GB");
  command.add_option("--speeds", a.speeds, "where devices differ, of each: 1,1,0.5; 1 is the profile's");
  command.add_option("--activation-cost", a.activation_cost, "on off; default: on, with released off");
  command.add_option("--states", a.states, "prefix, or antichain as the released optimizer")
      ->capture_default_str();
  command.add_option("--batch-factor", a.batch_factor, "times and activations so many times the profile's");
  command.add_flag("--straight", a.straight, "no replicas");
  command.add_flag("--fewer-devices", a.fewer_devices,
                   "leave devices (outer level: machines) idle where better");
  command.add_flag("--explain", a.explain,
                   "also the best plans of other stage counts, and what bounds each stage");
  command.add_option("-o,--output", a.output, "write the plan (JSON) here, for `yoke simulate --plan`");
}

void describe(CLI::App& command, SimulateArguments& a) {
  command.add_option("--schedule", a.schedule, "naive gpipe 1f1b pipedream 2bw interleaved zb-h1");
  command.add_option("--stages", a.stages, "devices in a row");
  command.add_option("--microbatches", a.microbatches, "of each minibatch");
  command.add_option("--minibatches", a.minibatches, "one after the other; default 1, with --plan 64");
  command.add_option("--forward", a.forward, "seconds of a stage and micro-batch: 1, or 1,2,1,1");
  command.add_option("--backward", a.backward, "the whole backward, likewise");
  command.add_option("--weight-backward", a.weight_backward, "zb-h1: its weight part; default half");
  command.add_option("--chunks", a.chunks, "interleaved: of each device")->capture_default_str();
  command.add_option("--replicas", a.replicas, "of each stage: 2,1,1");
  command.add_option("--transfer", a.transfer, "seconds to the next stage, one way");
  command.add_flag("--vertical-sync", a.vertical_sync, "pipedream: one version for all stages");
  command.add_option("--plan", a.plan, "stages, times and replicas of a plan; schedule pipedream");
  command.add_option("--cluster", a.cluster, "with --plan: bandwidths of this cluster.toml");
  command.add_option("--svg", a.svg, "write the timeline here");
  command.add_option("--trace", a.trace, "write a Chrome trace here");
}

void describe(CLI::App& command, PartitionArguments& a) {
  command.add_option("GRAPH", a.graph, "a profile (JSON, with edges) or PipeDream's graph.txt")->required();
  command.add_option("--parts", a.parts, "machines")->required();
  command.add_option("--balance", a.balance, "no part above this times the average")->capture_default_str();
  command.add_option("--weight", a.weight, "what is balanced: seconds parameters nodes")
      ->capture_default_str();
  command.add_option("--seed", a.seed, "of the search in large graphs")->capture_default_str();
  command.add_option("--svg", a.svg, "draw the graph here");
}

}  // namespace yoke::cli
