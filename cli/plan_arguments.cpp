#include "cli/plan_arguments.h"

#include <CLI/CLI.hpp>

namespace yoke::cli {

void describe(CLI::App& command, PlanArguments& a) {
  command.add_option("--profile", a.profile, "a profile (JSON) or PipeDream's graph.txt")->required();
  command.add_option("--devices", a.devices, "number of devices");
  command.add_option("--bandwidth", a.bandwidth, "bandwidth between any two devices: 10gbit, 1.25GB/s");
  command.add_option("--levels", a.levels, "devices per machine, then machines: 4@12GB/s,4@1.25GB/s");
  command.add_option("--cluster", a.cluster, "cluster.toml, instead of --devices and --levels");
  command.add_option("--cost-model", a.cost_model, "ring paper2018 paper2019 released")
      ->capture_default_str();
  command.add_option("--memory", a.memory, "memory per device: 12GB, or a list 12GB,12GB,6GB");
  command.add_option("--speeds", a.speeds, "speed of each device: 1,1,0.5; 1 is the profiled device");
  command.add_option("--activation-cost", a.activation_cost, "on or off; default: on, for released off");
  command.add_option("--states", a.states, "prefix, or antichain as in the released optimizer")
      ->capture_default_str();
  command.add_option("--batch-factor", a.batch_factor, "factor for times and activations of the profile");
  command.add_flag("--straight", a.straight, "no replicas");
  command.add_flag("--fewer-devices", a.fewer_devices,
                   "allow idle devices (outer level: machines) if faster");
  command.add_flag("--explain", a.explain,
                   "also show plans with other stage counts and each stage's bottleneck");
  command.add_option("-o,--output", a.output, "output file for the plan (JSON), for `yoke simulate --plan`");
}

void describe(CLI::App& command, SimulateArguments& a) {
  command.add_option("--schedule", a.schedule, "naive gpipe 1f1b pipedream 2bw interleaved zb-h1");
  command.add_option("--stages", a.stages, "number of stages");
  command.add_option("--microbatches", a.microbatches, "micro-batches per minibatch");
  command.add_option("--minibatches", a.minibatches, "number of minibatches; default 1, with --plan 64");
  command.add_option("--forward", a.forward, "forward seconds per stage and micro-batch: 1, or 1,2,1,1");
  command.add_option("--backward", a.backward, "backward seconds, in the same form");
  command.add_option("--weight-backward", a.weight_backward,
                     "zb-h1: weight part of the backward; default: half");
  command.add_option("--chunks", a.chunks, "interleaved: chunks per device; 0: two")->capture_default_str();
  command.add_option("--replicas", a.replicas, "replicas per stage: 2,1,1");
  command.add_option("--transfer", a.transfer, "transfer seconds to the next stage");
  command.add_flag("--vertical-sync", a.vertical_sync, "pipedream: all stages use the same weight version");
  command.add_option("--plan", a.plan, "plan with stages, times and replicas; schedule pipedream");
  command.add_option("--cluster", a.cluster, "with --plan: cluster.toml with the bandwidths");
  command.add_option("--svg", a.svg, "output file for the timeline");
  command.add_option("--trace", a.trace, "output file for a Chrome trace");
}

void describe(CLI::App& command, PartitionArguments& a) {
  command.add_option("GRAPH", a.graph, "a profile (JSON, with edges) or PipeDream's graph.txt")->required();
  command.add_option("--parts", a.parts, "number of machines")->required();
  command.add_option("--balance", a.balance, "maximum weight of a part relative to the average")
      ->capture_default_str();
  command.add_option("--weight", a.weight, "weight of a node: seconds parameters nodes")
      ->capture_default_str();
  command.add_option("--seed", a.seed, "random seed of the search in large graphs")->capture_default_str();
}

}  // namespace yoke::cli
