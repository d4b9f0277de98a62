// Collective algorithms as plain data: what one rank sends, receives and combines, in which order.
//
// Backends execute the list, the simulator prices it, tests replay it.
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

enum class Algorithm : uint8_t {
  kRing,
  kTree,
  kHalvingDoubling,
  kStar,
  kDirect,
  kHierarchical,
  kExchange,
  kSummation,
};

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
  kReceive,  // range from peer, overwrites
  kCombine,  // range from peer, combined with the local value
  // Range from peer, kept until all merges of the round have arrived; they and the local value are then
  // combined in rank order.
  kMerge,
};

// Steps of one round may run concurrently; a round starts when the previous one is complete on this rank. A
// send takes the value from before the round; messages between two ranks arrive in list order. Combines of a
// round are applied in list order, so the list alone determines the order of a reduction. Lists of
// collective_steps() number rounds alike on all ranks (a message is received in the round in which it is
// sent), and no rank writes a range in the round in which it sends it, except merges, which write at the end
// of the round. Empty messages are kept: every rank takes part in every operation, even an empty one.
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
  // Trees split each half into pieces of about this many elements and pipeline them; parts of kSummation have
  // at most as many.
  int64_t piece = 1 << 16;
  // Ranks per machine, for kHierarchical: rank / machine_size is the machine. Must divide size.
  int machine_size = 1;
  // kSummation: the last ranks only sum. They contribute nothing, and their buffer is scratch memory.
  int spares = 0;
};

// The working buffer has `count` elements on every rank:
//   all_reduce, reduce, broadcast   the data itself, in place;
//   reduce_scatter                  the input; the result of rank r is in part r;
//   all_gather, gather, scatter     the output (scatter: the root's input); rank r's own part is part r;
//   all_to_all                      2 x size parts of count / (2 size) elements: first those sent to each,
//                                   then those received from each (the executor copies its own part);
//   barrier                         count = 0: empty messages.
// Throws ConfigError if the algorithm does not support the operation; algorithms_for() lists those that do.
std::vector<Step> collective_steps(const CollectiveRequest& request);
std::vector<Algorithm> algorithms_for(Collective op);

// [count p / size, count (p+1) / size).
Range part_of(int64_t count, int part, int size);

// Traffic of one rank, from its list.
struct Traffic {
  int64_t elements_sent = 0;
  int64_t messages_sent = 0;
  int rounds = 0;
};
Traffic traffic_of(const std::vector<Step>& steps);

// Link cost: `alpha` seconds per message, `beta` seconds per byte; `gamma` seconds per byte to combine.
struct LinkCost {
  double alpha = 20e-6;
  double beta = 1 / 1e9;
  double gamma = 0;
};
double predict_seconds(Collective op, Algorithm algorithm, int size, int64_t bytes, const LinkCost& cost,
                       int machine_size = 1);

// The fastest algorithm if ranks send concurrently: predict_seconds() with overlapping messages and
// congestion.
Algorithm choose_algorithm(Collective op, int size, int64_t bytes, const LinkCost& cost,
                           int machine_size = 1);

// parent[r] in the two trees of NCCL's double binary tree; -1 at the root.
struct DoubleTree {
  std::vector<int> first;
  std::vector<int> second;
};
DoubleTree double_binary_tree(int size);

// One line per step, "0 send 1 [0,4)"; the inverse throws ConfigError with line numbers.
std::string to_string(const std::vector<Step>& steps);
std::vector<Step> parse_steps(const std::string& text);

// Throws ConfigError unless every receive has a matching send (same pair, order and size). lists[rank].
void validate_steps(const std::vector<std::vector<Step>>& lists);

}  // namespace yoke::plan
