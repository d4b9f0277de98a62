#include "cli/bench_ps_arguments.h"

#include <CLI/CLI.hpp>

namespace yoke::cli {

void add_options(CLI::App& command, BenchPsArguments& arguments) {
  auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help);
  };
  add("--policy", arguments.policy, "sync k_sync k_batch_sync async k_async k_batch_async bounded_delay ssp");
  add("--workers", arguments.workers, "how many there are");
  add("--k", arguments.k, "gradients of an update, for the k_ rules");
  add("--max-delay", arguments.max_delay, "rounds ahead of the slowest, for bounded_delay and ssp; or inf");
  add("--delay", arguments.delay, "none const:2x exp:5ms shifted_exp:5ms,5ms pareto:1ms,3 trace:FILE");
  add("--delay-workers", arguments.delay_workers, "who has that delay: 3,5; default all");
  add("--compute", arguments.compute, "time of a minibatch without it [1ms; 0 where the delay is a time]");
  add("--updates", arguments.updates, "measured, after a warm-up [1000; virtual clock: 100000]");
  add("--clock", arguments.clock, "real servers and workers that sleep, or virtual")->capture_default_str();
  add("--seed", arguments.seed, "of the delays and the noise")->capture_default_str();
  add("--objective", arguments.objective, "quadratic: F(w) = w^2/2; prints loss_floor");
  add("--noise", arguments.noise, "standard deviation of its gradients")->capture_default_str();
  add("--lr", arguments.lr, "its learning rate")->capture_default_str();
  add("--bytes", arguments.bytes, "size of the parameters; sizes with --throughput")->capture_default_str();
  add("--servers", arguments.servers, "that share them")->capture_default_str();
  add("--backend", arguments.backend, "shm or tcp")->capture_default_str();
  command.add_flag("--throughput", arguments.throughput,
                   "push and pull as fast as it goes, without a policy");
  add("--in-flight", arguments.in_flight, "requests of a worker at a time, with it [8; 1 above 64K]");
  add("--seconds", arguments.seconds, "for each size, with it")->capture_default_str();
  for (const char* name : {"--max-delay", "--delay"}) command.get_option(name)->capture_default_str();
}

}  // namespace yoke::cli
