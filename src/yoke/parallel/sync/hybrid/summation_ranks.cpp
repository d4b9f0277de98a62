#include "yoke/parallel/sync/hybrid/summation_ranks.h"

#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <set>

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/base/stop_signals.h"
#include "yoke/cluster/identity.h"
#include "yoke/comm/connect.h"
#include "yoke/comm/summation/summation.h"
#include "yoke/parallel/registry.h"
#include "yoke/plan/summation/shares.h"

namespace yoke::parallel {
namespace {

constexpr int64_t kSmallestPart = 64'000;

void check(const Choices& choices, int64_t workers) {
  const int64_t spares = choices.hybrid.servers;
  if (workers < 2)
    throw ConfigError(
        "parallel.sync = \"hybrid\" with hybrid.servers = {} and {} worker{}: there is nothing to sum. Start "
        "at least two workers, e.g. with --nproc 2; spare ranks are started beside them.",
        spares, workers, workers == 1 ? "" : "s");
  if (spares > workers)
    throw ConfigError(
        "hybrid.servers = {} with {} workers: more than one spare rank for each worker has nothing to do. "
        "Use 0..{}.",
        spares, workers, workers);
  if (choices.hybrid.part_bytes < kSmallestPart)
    throw ConfigError(
        "hybrid.part_bytes = {}: smaller parts cost more in messages than they gain. Use at least {}.",
        choices.hybrid.part_bytes, kSmallestPart);
  const std::string& backend = choices.parallel.backend;
  if (backend != "auto" && backend != "tcp")
    throw ConfigError(
        "parallel.backend = \"{}\" with parallel.sync = \"hybrid\": sums travel over tcp. Use auto or tcp.",
        backend);
}

}  // namespace

bool uses_spares(const Choices& choices) {
  return choose(choices).sync().has_spares;
}

int workers_beside_spares(const Choices& choices, int world_size) {
  const int64_t workers = world_size - choices.hybrid.servers;
  check(choices, std::max<int64_t>(0, workers));
  return static_cast<int>(workers);
}

int ranks_with_spares(const Choices& choices, int workers) {
  check(choices, workers);
  return workers + static_cast<int>(choices.hybrid.servers);
}

bool spares_may_pay(const cluster::World& world, const Choices& choices) {
  if (choices.parallel.sync != "auto") return true;
  const int workers = workers_beside_spares(choices, world.size());
  std::set<std::string> machines;
  for (int rank = 0; rank < workers; ++rank)
    machines.insert(world.members()[static_cast<size_t>(rank)].machine);
  const double gain = plan::summation_gain(workers, static_cast<int>(choices.hybrid.servers));
  if (machines.size() > 1 && gain >= kLeastGain) return true;
  if (world.rank() == 0)
    log::info("parallel.sync = \"auto\": all-reduce, because {}",
              machines.size() > 1
                  ? fmt::format("spare ranks would make it only {:.0f} % faster", 100 * (gain - 1))
                  : "all workers are on one machine");
  return false;
}

std::unique_ptr<comm::Communicator> make_workers(comm::Communicator& everyone, const Choices& choices) {
  return comm::make_summing(everyone, static_cast<int>(choices.hybrid.servers),
                            choices.parallel.sync == "auto" ? kLeastGain : 0);
}

std::unique_ptr<comm::Communicator> connect_all(cluster::World& world, const Choices& choices,
                                                bool deterministic) {
  const auto spares = static_cast<int>(choices.hybrid.servers);
  const int workers = workers_beside_spares(choices, world.size());
  const bool sums_only = world.rank() >= workers;
  world.take_role(sums_only ? fmt::format("spare rank {}", world.rank() - workers)
                            : fmt::format("worker {}", world.rank()));
  if (world.rank() == 0)
    log::info(
        "hybrid: {} workers, {} spare rank{}; over equal links an all-reduce would take {:.2f} times as long",
        workers, spares, spares == 1 ? "" : "s", plan::summation_gain(workers, spares));
  comm::ConnectOptions options;
  options.backend = "tcp";
  options.name = "summation";
  options.measures_links = !deterministic;
  options.spares = spares;
  options.part_bytes = choices.hybrid.part_bytes;
  return comm::connect(world, options);
}

void sum_gradients(const Choices& choices, bool deterministic) {
  // Workers that are told to stop still need sums, for their last step.
  for (int signal : kStopSignals) std::signal(signal, SIG_IGN);
  cluster::World world(cluster::identify_from_environment(), {});
  if (!spares_may_pay(world, choices)) return;
  auto everyone = connect_all(world, choices, deterministic);
  comm::sum_for_workers(*everyone);
}

}  // namespace yoke::parallel
