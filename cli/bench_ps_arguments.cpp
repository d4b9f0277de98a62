#include "cli/bench_ps_arguments.h"

#include <CLI/CLI.hpp>

namespace yoke::cli {

void add_options(CLI::App& command, BenchPsArguments& arguments) {
  auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help);
  };
  add("--policy", arguments.policy, "sync k_sync k_batch_sync async k_async k_batch_async bounded_delay ssp");
  add("--workers", arguments.workers, "number of workers");
  add("--k", arguments.k, "k_ rules: gradients per update");
  add("--max-delay", arguments.max_delay, "bounded_delay, ssp: maximum rounds ahead of the slowest, or inf");
  add("--delay", arguments.delay, "none const:2x exp:5ms shifted_exp:5ms,5ms pareto:1ms,3 trace:FILE");
  add("--delay-workers", arguments.delay_workers, "workers with that delay, e.g. 3,5; default: all");
  add("--link-delay", arguments.link_delay, "delay of each gradient on its way; as --delay, without const");
  add("--bandwidth", arguments.bandwidth, "virtual clock: of each machine's link, e.g. 10gbit [unlimited]");
  add("--compute", arguments.compute, "compute time of a minibatch [1ms; 0 if the delay is a time]");
  add("--updates", arguments.updates, "measured updates, after a warm-up [1000; virtual clock: 100000]");
  add("--clock", arguments.clock, "real (servers and sleeping workers) or virtual")->capture_default_str();
  add("--seed", arguments.seed, "random seed of delays and noise")->capture_default_str();
  add("--objective", arguments.objective, "quadratic: F(w) = w^2/2; prints loss_floor");
  add("--noise", arguments.noise, "quadratic: standard deviation of the gradient noise")
      ->capture_default_str();
  add("--lr", arguments.lr, "quadratic: learning rate")->capture_default_str();
  add("--bytes", arguments.bytes, "size of the parameters; list of sizes with --throughput")
      ->capture_default_str();
  add("--servers", arguments.servers, "number of servers")->capture_default_str();
  add("--backend", arguments.backend, "shm or tcp")->capture_default_str();
  command.add_flag("--throughput", arguments.throughput,
                   "measure maximum push and pull throughput, without a rule");
  add("--in-flight", arguments.in_flight, "--throughput: requests in flight per worker [8; 1 above 64K]");
  add("--seconds", arguments.seconds, "--throughput: seconds per size")->capture_default_str();
  for (const char* name : {"--max-delay", "--delay", "--link-delay"})
    command.get_option(name)->capture_default_str();
}

}  // namespace yoke::cli
