// Graphs on which ranks average with their neighbours instead of with everybody (gossip).
//
// A round replaces x_i by the mean of its own value and of those it receives: x <- W x. All graphs here are
// regular (everybody has d neighbours), so the uniform weights 1 / (d + 1) are the Metropolis weights, and W
// is doubly stochastic: the mean over ranks stays what it was. The distance from the mean falls by at least
// contraction() in a round; 1 - contraction() is the spectral gap.
#pragma once

#include <string>
#include <vector>

namespace yoke::plan {

struct MixingGraph {
  std::string kind;
  int size = 1;
  // By rank: to whom it sends and from whom it receives in a round, in a fixed order.
  std::vector<std::vector<int>> to, from;

  int degree() const { return to.empty() ? 0 : static_cast<int>(to[0].size()); }
  double weight() const { return 1.0 / (degree() + 1); }  // of each value, the own one included
};

// ring: the two neighbours; torus: the four of the most nearly square grid; hypercube: ranks that differ in
// one bit; exponential: rank r sends to r + 1, r + 2, r + 4, … (Ying et al. 2021), the only directed one;
// full: all others.
// Neighbours that coincide count once. Throws ConfigError for an unknown kind (listing all) and for a size
// that has no such graph (naming the nearest that has).
MixingGraph mixing_graph(const std::string& kind, int size);
std::vector<std::string> mixing_graph_names();

// Largest factor by which a round can leave the distance from the mean: the spectral norm of W - 1 1^T / n.
// In closed form, from the characters of the group the graph belongs to.
double contraction(const MixingGraph& graph);

// Largest factor by which one pair can leave the expected square of that distance, if a random rank and a
// random neighbour take the mean of their values (asynchronous gossip; Boyd et al. 2006). In closed form.
double pair_contraction(const MixingGraph& graph);

}  // namespace yoke::plan
