// Links between machines that are in doubt: who reaches whom, and who leaves so that the rest is connected.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "yoke/cluster/session.h"

namespace yoke::cluster {

// Two ranks that cannot reach each other, the lower one first. It stands for all ranks of their machines.
using CutLink = std::pair<int, int>;

// Whether a TCP connection to this address opens: the machine answers even where the process is busy or
// stopped.
bool answers(const std::string& address, double seconds);

// Ranks that this one calls and that do not answer a TCP connection within about 1.5 s. The first rank of
// each machine calls the first of those behind it, all at once; the others call nobody. `members`: by rank.
std::vector<int> silent_ranks(const std::vector<Member>& members, int rank);

// The fewest ranks without which all others reach each other, in order; of several choices the one with the
// higher ranks. Ranks of one machine leave together. With more than 16 machines at cut links: those with the
// most cut links first, which may be more than the fewest.
std::vector<int> who_leaves(const std::vector<Member>& members, const std::vector<CutLink>& cut);

// "rank 1 on a (10.0.0.1:4711) and rank 2 on b (10.0.0.2:4712) cannot reach each other".
std::string describe(const std::vector<Member>& members, const std::vector<CutLink>& cut);

}  // namespace yoke::cluster
