#include "yoke/parallel/sync/servers/worker_delays.h"

namespace yoke::parallel {
namespace {

plan::DelayLaw of_slow_worker(const PsSetup& setup, const plan::DelayLaw& law) {
  const auto slow = plan::parse_slow_workers("slowdown.workers", setup.slowdown.workers, setup.workers);
  return slow[static_cast<size_t>(setup.messenger->rank())] ? law : plan::DelayLaw();
}

uint64_t seed_of(const PsSetup& setup) {
  return static_cast<uint64_t>(setup.slowdown.seed);
}

}  // namespace

WorkerDelays::WorkerDelays(const PsSetup& setup)
    : compute(of_slow_worker(setup, plan::parse_delay_law(setup.slowdown.law)), seed_of(setup),
              setup.messenger->rank()),
      link(plan::link_delays(of_slow_worker(setup, plan::parse_link_law(setup.slowdown.link)), seed_of(setup),
                             setup.messenger->rank())) {}

}  // namespace yoke::parallel
