#include "cli/lab_arguments.h"

#include <CLI/CLI.hpp>

namespace yoke::cli {

void add_options(CLI::App& command, LabArguments& lab) {
  command.add_option("FILE", lab.file, "configuration (TOML)")->required();
  command.add_option("--policies", lab.policies, "all, or a list: sync,k_async")->capture_default_str();
  command.add_option("--workers", lab.workers, "of each run")->capture_default_str();
  command.add_option("--servers", lab.servers, "of each run")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command.add_option("--k", lab.k, "of the k_ rules [half of the workers]");
  command.add_option("--max-delay", lab.max_delay, "of bounded_delay and ssp")->capture_default_str();
  command
      .add_option("--delay", lab.delay, "none const:2x exp:5ms shifted_exp:5ms,5ms pareto:1ms,3 trace:FILE")
      ->capture_default_str();
  command.add_option("--delay-workers", lab.delay_workers, "who has that delay: 3,5; default all");
  command.add_option("--target-loss", lab.target_loss, "who reaches it first? [the loss that all reach]");
  command.add_flag("--fault-free", lab.fault_free,
                   "run each rule without delays too, and compare update rates");
  command.add_option("-o,--output", lab.output, "folder [runs/lab_stragglers]");
}

}  // namespace yoke::cli
