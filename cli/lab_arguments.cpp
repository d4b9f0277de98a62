#include "cli/lab_arguments.h"

#include <CLI/CLI.hpp>

#include "cli/positive.h"

namespace yoke::cli {
namespace {

// A range that the help does not spell out, so that an option takes one line.
template <class T>
CLI::Validator within(T low, T high) {
  return CLI::Range(low, high).description("");
}

}  // namespace

void add_options(CLI::App& command, LabArguments& lab) {
  command.add_option("FILE", lab.file, "configuration (TOML) to train too; default: the virtual clock only");
  command.add_flag("--trained", lab.trained, "train a recipe with noisy labels too, on 4 workers");
  command.add_option("--policies", lab.policies, "all, or a list: sync,k_async")->capture_default_str();
  command.add_option("--workers", lab.workers, "per run")->capture_default_str();
  command.add_option("--servers", lab.servers, "per run")->check(within(1, 256))->capture_default_str();
  command.add_option("--k", lab.k, "k_ rules: gradients per update [half of the workers]");
  command.add_option("--max-delay", lab.max_delay, "bounded_delay, ssp: maximum rounds ahead of the slowest")
      ->capture_default_str();
  command
      .add_option("--delay", lab.delay, "none const:2x exp:5ms shifted_exp:5ms,5ms pareto:1ms,3 trace:FILE")
      ->capture_default_str();
  command.add_option("--delay-workers", lab.delay_workers, "workers with that delay, e.g. 3,5; default: all");
  command.add_option("--target-loss", lab.target_loss,
                     "loss for the time to target [lowest loss that all rules reach]");
  command.add_flag("--fault-free", lab.fault_free,
                   "also run each rule without delays, and compare update rates");
}

void add_options(CLI::App& command, AveragingLabArguments& lab) {
  command.add_option("FILE", lab.file, "configuration (TOML) [LeNet on synthetic pictures]");
  command.add_option("--methods", lab.methods, "all, or a list: ddp,local,gossip_ring")
      ->capture_default_str();
  command.add_option("--workers", lab.workers, "ranks of each run")
      ->check(within(2, 256))
      ->capture_default_str();
  command.add_option("--every", lab.every, "local steps between two rounds")
      ->check(within(1, 1'000'000))
      ->capture_default_str();
  command.add_option("--steps", lab.steps, "steps of each run [train.steps]")
      ->check(within(1, 1'000'000'000));
  command.add_option("--bandwidth", lab.bandwidth, "of the modelled link: 100mbit, 12.5MB/s")
      ->capture_default_str();
  command.add_option("--latency", lab.latency, "of a message on it: 1ms")->capture_default_str();
  command.add_option("--compute", lab.compute, "time to compute a step [without FILE 20ms; measured]");
  command.add_option("--target-loss", lab.target_loss,
                     "loss for the time to target [lowest loss that all methods reach]");
}

void add_options(CLI::App& command, SparseLabArguments& lab) {
  command.add_option("FILE", lab.file, "examples in libsvm format [generated]");
  command.add_option("--examples", lab.examples, "generated examples; of FILE: at most so many")
      ->check(within(int64_t{1}, int64_t{1} << 31))
      ->capture_default_str();
  command.add_option("--keys", lab.keys, "features")
      ->check(within(int64_t{2}, int64_t{1} << 31))
      ->capture_default_str();
  command.add_option("--per-example", lab.per_example, "generated features of an example")
      ->check(within(1, 10'000))
      ->capture_default_str();
  command.add_option("--workers", lab.workers, "per run")->check(within(1, 256))->capture_default_str();
  command.add_option("--servers", lab.servers, "per run")->check(within(1, 256))->capture_default_str();
  command.add_option("--blocks", lab.blocks, "blocks of features")
      ->check(within(1, 1'000'000))
      ->capture_default_str();
  command.add_option("--l1", lab.l1, "penalty: minimises the sum of the log losses + l1 |w|_1")
      ->check(finite_from_zero())
      ->capture_default_str();
  command.add_option("--passes", lab.passes, "over all blocks, per run")
      ->check(within(1, 1'000'000))
      ->capture_default_str();
  command.add_option("--max-delay", lab.max_delays, "visits that may overlap, a run for each [0,1,2,4,8,16]");
  command.add_option("--damping", lab.damping, "shorter steps with a delay: 0 none, 1 safe for any data")
      ->check(finite_from_zero())
      ->capture_default_str();
  command
      .add_option("--delay", lab.delay, "none const:2x exp:5ms shifted_exp:5ms,5ms pareto:1ms,3 trace:FILE")
      ->capture_default_str();
  command.add_option("--delay-workers", lab.delay_workers, "workers with that delay, e.g. 3,5; default: all");
  command.add_option("--backend", lab.backend, "shm or tcp")
      ->check(CLI::IsMember({"shm", "tcp"}).description(""))
      ->capture_default_str();
  command.add_option("--seed", lab.seed, "of the examples, the order of blocks and the delays")
      ->capture_default_str();
}

void add_options(CLI::App& command, DownpourLabArguments& lab) {
  command.add_option("FILE", lab.file, "configuration (TOML) [LeNet on synthetic pictures]");
  command.add_option("--methods", lab.methods, "all, or a list: sgd,downpour,downpour_adagrad,sandblaster")
      ->capture_default_str();
  command.add_option("--workers", lab.workers, "of each method but sgd")
      ->check(within(1, 256))
      ->capture_default_str();
  command.add_option("--servers", lab.servers, "per run")->check(within(1, 256))->capture_default_str();
  command.add_option("--epochs", lab.epochs, "of each run; the accuracy is measured after each")
      ->check(positive())
      ->capture_default_str();
  command.add_option("--adagrad-lr", lab.adagrad_lr, "learning rate of downpour_adagrad")
      ->check(positive())
      ->capture_default_str();
  command
      .add_option("--lbfgs-batch", lab.lbfgs_batch, "sandblaster: samples per worker [8 x data.batch_size]")
      ->check(within(1, 1'000'000'000));
  command
      .add_option("--target-accuracy", lab.target_accuracy,
                  "from 0 to 1, for the time to target [what all methods reach]")
      ->check(within(0.0, 1.0));
}

}  // namespace yoke::cli
