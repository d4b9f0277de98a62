#include "yoke/sim/averaging.h"

#include <algorithm>

namespace yoke::sim {
namespace {

struct Cost {
  double seconds, bytes;
};

// A ring: 2 (n - 1) messages of 1 / n each.
Cost all_reduce_cost(double bytes, int ranks, const LinkSpeed& link) {
  const double messages = 2.0 * (ranks - 1), sent = messages * bytes / ranks;
  return {messages * link.latency + sent / link.bytes_per_second, sent};
}

Cost gossip_cost(double bytes, int neighbours, const LinkSpeed& link) {
  return {link.latency + neighbours * bytes / link.bytes_per_second, neighbours * bytes};
}

// An ask and an answer, then the values of one and, when these are there, of the other. A rank that asks once
// is asked once on average.
Cost pairs_cost(double bytes, const LinkSpeed& link) {
  const double pair = 3 * link.latency + 2 * bytes / link.bytes_per_second;
  return {2 * pair, 2 * bytes};
}

}  // namespace

double pairs_load(const AveragingRun& run, const LinkSpeed& link) {
  return pairs_cost(run.model_bytes, link).seconds /
         (static_cast<double>(run.pairs_every) * run.compute_seconds);
}

AveragingTrace simulate_averaging(const AveragingRun& run, const LinkSpeed& link, int64_t steps) {
  AveragingTrace trace;
  double now = 0, free = 0, sent = 0;  // of the link: when it has carried everything
  std::vector<double> arrives(static_cast<size_t>(run.rounds.fragments), 0);
  const Cost gradients = all_reduce_cost(run.model_bytes, run.ranks, link);
  const double part = run.model_bytes / static_cast<double>(run.rounds.fragments);
  const Cost round =
      run.neighbours > 0 ? gossip_cost(part, run.neighbours, link) : all_reduce_cost(part, run.ranks, link);
  for (int64_t step = 1; step <= steps; ++step) {
    const double begun = now;
    now += run.compute_seconds;
    if (run.gradients && (run.rounds.after == 0 || step <= run.rounds.after)) {
      const double forward = begun + run.compute_seconds * (1 - run.backward_share);
      now = std::max(now, forward + gradients.seconds);
      sent += gradients.bytes;
    }
    if (auto one = run.rounds.ends(step); one && run.rounds.overlap > 0)
      now = std::max(now, arrives[static_cast<size_t>(*one)]);
    if (auto one = run.rounds.begins(step)) {
      free = std::max(free, now) + round.seconds;
      arrives[static_cast<size_t>(*one)] = free;
      sent += round.bytes;
      if (run.rounds.overlap == 0) now = free;
    }
    if (run.pairs_every > 0 && step % run.pairs_every == 0) {
      const Cost pairs = pairs_cost(run.model_bytes, link);  // nobody waits for them
      free = std::max(free, now) + pairs.seconds;
      sent += pairs.bytes;
    }
    if (step == steps && run.average_at_end) {
      const Cost all = all_reduce_cost(run.model_bytes, run.ranks, link);
      now = std::max(now, free) + all.seconds;
      sent += all.bytes;
    }
    trace.seconds.push_back(now);
    trace.bytes.push_back(sent);
  }
  return trace;
}

}  // namespace yoke::sim
