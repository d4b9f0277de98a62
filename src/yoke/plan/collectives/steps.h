// Collective algorithms as plain data: what one rank sends, receives and combines, in which order.
//
// A backend executes the list, the simulator prices it, a test replays it: all three read the same value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yoke::plan {

enum class Collective : uint8_t {
  kAllReduce,
  kReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kBroadcast,
  kGather,
  kScatter,
  kBarrier,
};

const char* to_string(Collective op);                  // "all_reduce", …
Collective parse_collective(const std::string& name);  // throws ConfigError listing what is accepted

enum class Algorithm : uint8_t { kRing, kTree, kHalvingDoubling, kStar, kDirect, kHierarchical, kExchange };

const char* to_string(Algorithm algorithm);  // "ring", "tree" (double binary), "halving_doubling", "star", …
Algorithm parse_algorithm(const std::string& name);  // throws ConfigError listing what is accepted

// Elements [begin, begin + count) of the operation's working buffer.
struct Range {
  int64_t begin = 0;
  int64_t count = 0;
  bool operator==(const Range&) const = default;
};

enum class Action : uint8_t {
  kSend,     // range to peer
  kReceive,  // range from peer, replaces what is there
  kCombine,  // range from peer, combined with what is there
  kMerge,    // range from peer, kept until all of the round that merge it are there; they and what is there
             // are then combined in the order of ranks
};

// Steps of one round may run at the same time; a round begins when the one before is complete on this rank.
// Within a round, what is sent is what was there before the round; between two ranks, messages arrive in list
// order. Combines of a round are applied in list order, so that the list alone fixes the order of a
// reduction. The lists of collective_steps() number rounds alike on all ranks (a message is received in the
// round in which it is sent), and no rank writes in a round what it sends in that round, but for merges,
// which write when the round is over. Messages without elements stay in the list: every rank hears of an
// operation, also of an empty one.
struct Step {
  int round = 0;
  Action action = Action::kSend;
  int peer = 0;
  Range range;
  bool operator==(const Step&) const = default;
};

struct CollectiveRequest {
  Collective op = Collective::kAllReduce;
  Algorithm algorithm = Algorithm::kRing;
  int rank = 0;
  int size = 1;
  int root = 0;       // reduce, broadcast, gather, scatter
  int64_t count = 0;  // elements of the working buffer, see below
  // Elements of each rank's part (all_gather, reduce_scatter, gather, scatter); empty: part p is
  // [count p / size, count (p+1) / size), rounded down.
  std::vector<int64_t> parts;
  // Trees cut their halves into pieces of about this many elements and pipeline them.
  int64_t piece = 1 << 16;
  // Ranks per machine, for kHierarchical: rank / machine_size is the machine. Must divide size.
  int machine_size = 1;
};

// The working buffer is `count` elements on every rank:
//   all_reduce, reduce, broadcast   the data itself, in place;
//   reduce_scatter                  the input; rank r finds its result in part r;
//   all_gather, gather, scatter     the output (scatter: the root's input); rank r's own part is part r;
//   all_to_all                      2 x size parts of count / (2 size) elements: first what goes to each
//   rank, then what came
//                                   from each rank (own part copied by the executor);
//   barrier                         count = 0: messages without content.
// Throws ConfigError when the algorithm has no form of the operation; algorithms_for() lists those that have.
std::vector<Step> collective_steps(const CollectiveRequest& request);
std::vector<Algorithm> algorithms_for(Collective op);

// [count p / size, count (p+1) / size).
Range part_of(int64_t count, int part, int size);

// What one rank moves, from its list.
struct Traffic {
  int64_t elements_sent = 0;
  int64_t messages_sent = 0;
  int rounds = 0;
};
Traffic traffic_of(const std::vector<Step>& steps);

// Seconds on links of `alpha` seconds a message and `beta` seconds a byte; gamma seconds a byte to combine.
struct LinkCost {
  double alpha = 20e-6;
  double beta = 1 / 1e9;
  double gamma = 0;
};
double predict_seconds(Collective op, Algorithm algorithm, int size, int64_t bytes, const LinkCost& cost,
                       int machine_size = 1);

// The quickest algorithm where ranks act at once: predict_seconds with messages that overlap and crowd.
Algorithm choose_algorithm(Collective op, int size, int64_t bytes, const LinkCost& cost,
                           int machine_size = 1);

// parent[r] in the two trees of NCCL's double binary tree; -1 at the root.
struct DoubleTree {
  std::vector<int> first;
  std::vector<int> second;
};
DoubleTree double_binary_tree(int size);

// One line a step, "0 send 1 [0,4)"; the inverse throws ConfigError with line numbers.
std::string to_string(const std::vector<Step>& steps);
std::vector<Step> parse_steps(const std::string& text);

// Throws ConfigError unless every receive of any rank has its send (same peer pair, order and size).
// lists[rank].
void validate_steps(const std::vector<std::vector<Step>>& lists);

}  // namespace yoke::plan
