// Ranks of a job whose gradients are summed by workers and spare ranks (parallel.sync = "hybrid", or "auto"
// where that is faster).
//
// World order: workers, then hybrid.servers spare ranks, which need no LibTorch.
#pragma once

#include <memory>

#include "yoke/cluster/world.h"
#include "yoke/comm/communicator.h"
#include "yoke/parallel/choices.h"

namespace yoke::parallel {

// Whether the job has ranks for sums beside its workers.
bool uses_spares(const Choices& choices);

// Workers in a world of that size, and the size of the world of that many workers. Throw ConfigError where
// [hybrid] or parallel.backend do not fit.
int workers_beside_spares(const Choices& choices, int world_size);
int ranks_with_spares(const Choices& choices, int workers);

// Whether spare ranks may be of use: always with "hybrid"; with "auto" if the workers are on several machines
// and the closed form promises kLeastGain. Otherwise spare ranks end at once. The same on all ranks.
bool spares_may_pay(const cluster::World& world, const Choices& choices);
inline constexpr double kLeastGain = 1.05;

// Connects all ranks, as a worker or a spare rank. Collective over the world. Throws CommError.
std::unique_ptr<comm::Communicator> connect_all(cluster::World& world, const Choices& choices,
                                                bool deterministic);

// The communicator of a worker. `everyone` is that of connect_all() and must outlive it. Collective over the
// world. Throws CommError.
std::unique_ptr<comm::Communicator> make_workers(comm::Communicator& everyone, const Choices& choices);

// The whole life of a spare rank. Throws CommError.
void sum_gradients(const Choices& choices, bool deterministic);

}  // namespace yoke::parallel
