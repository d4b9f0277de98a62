// Closed-form times of every algorithm: a rank sends one message and receives one at a time, each takes alpha
// + bytes x beta. Pipelined pieces are taken as infinitely small (docs/design/collectives.md).
#include <bit>
#include <cmath>
#include <limits>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/plan/collectives/steps.h"

namespace yoke::plan {
namespace {

struct Point {
  double n, bytes;
  LinkCost link;
  double core_rounds, core;      // log2 and number of the ranks left after folding in surplus ones
  double folds;                  // 1: there are surplus ranks
  double hops, hops_below;       // depth of the double tree; the same with a root above
  double per_machine, machines;  // hierarchical

  double messages(double count, double size) const { return count * (link.alpha + size * link.beta); }
  double part() const { return bytes / n; }
  double share() const { return bytes / per_machine; }
  // Pipelined over `distance` hops while every rank sends `sent` bytes.
  double stream(double distance, double sent) const { return distance * link.alpha + sent * link.beta; }
  double combining(double size) const { return size * link.gamma; }
  double halving() const { return core_rounds * link.alpha + (core - 1) / core * bytes * link.beta; }
};

using Seconds = double (*)(const Point&);
struct CostEntry {
  Collective op;
  Algorithm algorithm;
  Seconds seconds;
};

double ring_all_reduce(const Point& p) {
  return p.messages(2 * (p.n - 1), p.part()) + p.combining((p.n - 1) * p.part());
}
double neighbours(const Point& p) {  // N-1 messages of one part: ring and direct
  return p.messages(p.n - 1, p.part());
}
double neighbours_combining(const Point& p) {
  return neighbours(p) + p.combining((p.n - 1) * p.part());
}
double ring_reduce(const Point& p) {
  return p.stream(p.n - 1, p.bytes) + p.combining(p.bytes);
}
double ring_broadcast(const Point& p) {
  return p.stream(p.n - 1, p.bytes);
}

double tree_all_reduce(const Point& p) {
  return p.stream(2 * p.hops, 2 * p.bytes) + p.combining(p.bytes);
}
double tree_reduce(const Point& p) {
  return p.stream(p.hops_below, p.bytes) + p.combining(p.bytes);
}
double tree_broadcast(const Point& p) {
  return p.stream(p.hops_below, p.bytes);
}
double tree_barrier(const Point& p) {
  return p.stream(2 * p.hops, 0);
}

double halving_combining(const Point& p) {
  return p.combining(p.bytes * ((p.core - 1) / p.core + p.folds));
}
double halving_all_reduce(const Point& p) {
  return 2 * p.halving() + p.messages(2 * p.folds, p.bytes) + halving_combining(p);
}
double halving_reduce(const Point& p) {
  return 2 * p.halving() + p.messages(p.folds, p.bytes) + halving_combining(p);
}
double halving_broadcast(const Point& p) {
  return 2 * p.halving() + p.messages(p.folds, p.bytes);
}
double halving_all_gather(const Point& p) {
  return p.halving() + p.messages(p.folds, p.bytes) + p.messages(p.folds, p.part());
}
double halving_reduce_scatter(const Point& p) {
  return halving_all_gather(p) + halving_combining(p);
}
double halving_gather(const Point& p) {
  return p.halving() + p.messages(p.folds, p.part());
}
double halving_barrier(const Point& p) {
  return p.stream(p.core_rounds + 2 * p.folds, 0);
}

double star_broadcast(const Point& p) {
  return p.messages(p.n - 1, p.bytes);
}
double star_reduce(const Point& p) {
  return star_broadcast(p) + p.combining((p.n - 1) * p.bytes);
}
double star_all_reduce(const Point& p) {
  return star_reduce(p) + star_broadcast(p);
}
double star_reduce_scatter(const Point& p) {
  return star_reduce(p) + neighbours(p);
}
double star_all_gather(const Point& p) {
  return neighbours(p) + star_broadcast(p);
}
double star_barrier(const Point& p) {
  return p.messages(2 * (p.n - 1), 0);
}

double exchange_all_reduce(const Point& p) {
  return star_broadcast(p) + p.combining((p.n - 1) * p.bytes);
}
double direct_broadcast(const Point& p) {
  return p.messages(2 * p.n - 3, p.bytes / (p.n - 1));
}
double direct_barrier(const Point& p) {
  return p.messages(p.n - 1, 0);
}

double inside(const Point& p) {
  return p.messages(p.per_machine - 1, p.share());
}
double inside_combining(const Point& p) {
  return p.combining((p.per_machine - 1) * p.share());
}
double hierarchical_all_reduce(const Point& p) {
  return 2 * inside(p) + p.messages(2 * (p.machines - 1), p.part()) + inside_combining(p) +
         p.combining((p.machines - 1) * p.part());
}
double hierarchical_broadcast(const Point& p) {
  return 2 * inside(p) + (p.machines > 1 ? p.stream(p.machines - 1, p.share()) : 0);
}
double hierarchical_reduce(const Point& p) {
  return hierarchical_broadcast(p) + inside_combining(p) + p.combining(p.machines > 1 ? p.share() : 0);
}
double hierarchical_all_gather(const Point& p) {
  return p.messages((p.per_machine - 1) * p.machines + p.machines - 1, p.part());
}
double hierarchical_reduce_scatter(const Point& p) {
  return hierarchical_all_gather(p) + inside_combining(p) + p.combining((p.machines - 1) * p.part());
}
double hierarchical_gather(const Point& p) {
  return p.messages(p.per_machine - 1, p.part()) + p.messages(p.machines - 1, p.part() * p.per_machine);
}
double hierarchical_barrier(const Point& p) {
  return p.messages(2 * (p.per_machine - 1) + p.machines - 1, 0);
}

// Of messages sent at the same time to different peers, all but the first cost this fraction of alpha: they
// do not wait for each other's latency.
constexpr double kFollowing = 0.5;
// Every further rank that sends to the same receiver at the same time costs this fraction of the bandwidth:
// switch queues overflow, and the receiver has to poll more sockets.
constexpr double kCrowding = 0.05;

// Direct, exchange, star and summation have N-1 messages in flight where the others have one.
bool acts_at_once(Algorithm algorithm) {
  return algorithm == Algorithm::kDirect || algorithm == Algorithm::kExchange ||
         algorithm == Algorithm::kStar || algorithm == Algorithm::kSummation;
}

// Above this many bytes an exchange does not pay even if it saves a round: other algorithms combine parts
// while more data arrives, an exchange combines everything N times at the end.
constexpr int64_t kMostExchanged = 64 << 10;

LinkCost at_once(LinkCost cost, int size) {
  int others = size - 1;
  if (others < 2) return cost;
  cost.alpha *= (1 + (others - 1) * kFollowing) / others;
  cost.beta *= 1 + (others - 1) * kCrowding;
  return cost;
}

// On a tie the first entry wins: direct has the fewest rounds of the algorithms that split the data.
constexpr CostEntry kCosts[] = {
    {Collective::kAllReduce, Algorithm::kDirect, ring_all_reduce},
    {Collective::kAllReduce, Algorithm::kExchange, exchange_all_reduce},
    {Collective::kAllReduce, Algorithm::kHalvingDoubling, halving_all_reduce},
    {Collective::kAllReduce, Algorithm::kRing, ring_all_reduce},
    {Collective::kAllReduce, Algorithm::kTree, tree_all_reduce},
    {Collective::kAllReduce, Algorithm::kStar, star_all_reduce},
    {Collective::kAllReduce, Algorithm::kHierarchical, hierarchical_all_reduce},
    // Without spare machines; with them summation_shares() has the time.
    {Collective::kAllReduce, Algorithm::kSummation, ring_all_reduce},
    {Collective::kReduce, Algorithm::kStar, star_reduce},
    {Collective::kReduce, Algorithm::kDirect,
     [](const Point& p) { return neighbours(p) + neighbours_combining(p); }},
    {Collective::kReduce, Algorithm::kHalvingDoubling, halving_reduce},
    {Collective::kReduce, Algorithm::kRing, ring_reduce},
    {Collective::kReduce, Algorithm::kTree, tree_reduce},
    {Collective::kReduce, Algorithm::kHierarchical, hierarchical_reduce},
    {Collective::kReduceScatter, Algorithm::kDirect, neighbours_combining},
    {Collective::kReduceScatter, Algorithm::kHalvingDoubling, halving_reduce_scatter},
    {Collective::kReduceScatter, Algorithm::kRing, neighbours_combining},
    {Collective::kReduceScatter, Algorithm::kStar, star_reduce_scatter},
    {Collective::kReduceScatter, Algorithm::kHierarchical, hierarchical_reduce_scatter},
    {Collective::kAllGather, Algorithm::kDirect, neighbours},
    {Collective::kAllGather, Algorithm::kHalvingDoubling, halving_all_gather},
    {Collective::kAllGather, Algorithm::kRing, neighbours},
    {Collective::kAllGather, Algorithm::kStar, star_all_gather},
    {Collective::kAllGather, Algorithm::kHierarchical, hierarchical_all_gather},
    {Collective::kAllToAll, Algorithm::kDirect, neighbours},
    {Collective::kBroadcast, Algorithm::kStar, star_broadcast},
    {Collective::kBroadcast, Algorithm::kDirect, direct_broadcast},
    {Collective::kBroadcast, Algorithm::kHalvingDoubling, halving_broadcast},
    {Collective::kBroadcast, Algorithm::kRing, ring_broadcast},
    {Collective::kBroadcast, Algorithm::kTree, tree_broadcast},
    {Collective::kBroadcast, Algorithm::kHierarchical, hierarchical_broadcast},
    {Collective::kGather, Algorithm::kDirect, neighbours},
    {Collective::kGather, Algorithm::kStar, neighbours},
    {Collective::kGather, Algorithm::kHalvingDoubling, halving_gather},
    {Collective::kGather, Algorithm::kHierarchical, hierarchical_gather},
    {Collective::kScatter, Algorithm::kDirect, neighbours},
    {Collective::kScatter, Algorithm::kStar, neighbours},
    {Collective::kScatter, Algorithm::kHalvingDoubling, halving_gather},
    {Collective::kScatter, Algorithm::kHierarchical, hierarchical_gather},
    {Collective::kBarrier, Algorithm::kDirect, direct_barrier},
    {Collective::kBarrier, Algorithm::kHalvingDoubling, halving_barrier},
    {Collective::kBarrier, Algorithm::kTree, tree_barrier},
    {Collective::kBarrier, Algorithm::kStar, star_barrier},
    {Collective::kBarrier, Algorithm::kHierarchical, hierarchical_barrier},
};

int log2_up(int n) {
  return n <= 1 ? 0 : std::bit_width(static_cast<unsigned>(n - 1));
}

Point point_of(int size, int64_t bytes, const LinkCost& cost, int machine_size) {
  int core_rounds = std::bit_width(static_cast<unsigned>(size)) - 1;
  int core = 1 << core_rounds;
  return {.n = static_cast<double>(size),
          .bytes = static_cast<double>(bytes),
          .link = cost,
          .core_rounds = static_cast<double>(core_rounds),
          .core = static_cast<double>(core),
          .folds = core == size ? 0.0 : 1.0,
          .hops = static_cast<double>(log2_up(size)),
          .hops_below = static_cast<double>(1 + log2_up(size - 1)),
          .per_machine = static_cast<double>(machine_size),
          .machines = static_cast<double>(size / machine_size)};
}

void check(Collective op, int size, int64_t bytes) {
  if (size < 1) throw ConfigError("{} among {} ranks: there must be at least one.", to_string(op), size);
  if (bytes < 0) throw ConfigError("{} of {} bytes.", to_string(op), bytes);
}

}  // namespace

double predict_seconds(Collective op, Algorithm algorithm, int size, int64_t bytes, const LinkCost& cost,
                       int machine_size) {
  check(op, size, bytes);
  bool divides = machine_size >= 1 && size % machine_size == 0;
  if (algorithm == Algorithm::kHierarchical && !divides)
    throw ConfigError("{} by hierarchy: {} ranks on machines of {}. Every machine must have the same number.",
                      to_string(op), size, machine_size);
  for (const CostEntry& entry : kCosts) {
    if (entry.op != op || entry.algorithm != algorithm) continue;
    return size == 1 ? 0 : entry.seconds(point_of(size, bytes, cost, divides ? machine_size : 1));
  }
  std::vector<std::string> names;
  for (Algorithm accepted : algorithms_for(op)) names.emplace_back(to_string(accepted));
  throw ConfigError("{} has no {} form. Accepted: {}.", to_string(op), to_string(algorithm),
                    join(names, " "));
}

Algorithm choose_algorithm(Collective op, int size, int64_t bytes, const LinkCost& cost, int machine_size) {
  check(op, size, bytes);
  bool has_machines = machine_size > 1 && machine_size < size && size % machine_size == 0;
  Algorithm best = Algorithm::kDirect;
  double least = std::numeric_limits<double>::infinity();
  for (const CostEntry& entry : kCosts) {
    if (entry.op != op || (entry.algorithm == Algorithm::kHierarchical && !has_machines)) continue;
    if (entry.algorithm == Algorithm::kExchange && bytes > kMostExchanged) continue;
    const LinkCost link = acts_at_once(entry.algorithm) ? at_once(cost, size) : cost;
    double seconds = predict_seconds(op, entry.algorithm, size, bytes, link, has_machines ? machine_size : 1);
    if (seconds < least) {
      least = seconds;
      best = entry.algorithm;
    }
  }
  return best;
}

}  // namespace yoke::plan
