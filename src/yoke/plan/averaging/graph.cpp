#include "yoke/plan/averaging/graph.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <numbers>
#include <set>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::plan {
namespace {

// A graph of this kind is that of a group: rank x sends to x + s for every s of a set. The group is a product
// of cycles, and so its characters, the eigenvectors of W, are known.
struct Group {
  std::vector<int> cycles;              // their lengths; the last one runs fastest
  std::vector<std::vector<int>> steps;  // one coordinate for each cycle
};

// The larger side is last. 0: there is no grid.
int short_side(int size) {
  for (int side = static_cast<int>(std::sqrt(static_cast<double>(size))); side >= 2; --side)
    if (size % side == 0) return side;
  return 0;
}

bool fits(const std::string& kind, int size) {
  if (kind == "torus") return short_side(size) > 0;
  if (kind == "hypercube") return size >= 2 && std::has_single_bit(static_cast<unsigned>(size));
  return size >= 2;
}

[[noreturn]] void refuse(const std::string& kind, int size) {
  int below = size - 1, above = std::max(2, size + 1);
  while (below >= 2 && !fits(kind, below)) --below;
  while (!fits(kind, above)) ++above;
  const char* needs = kind == "torus"       ? "a product of two numbers above 1"
                      : kind == "hypercube" ? "a power of two"
                                            : "at least 2";
  throw ConfigError("average.graph = \"{}\" on {} replicas: their number must be {}. Nearest: {}{}.", kind,
                    size, needs, below >= 2 ? fmt::format("{} or ", below) : "", above);
}

Group group_of(const std::string& kind, int size) {
  Group group;
  if (kind == "torus") {
    const int side = short_side(size);
    group.cycles = {side, size / side};
    group.steps = {{0, 1}, {0, -1}, {1, 0}, {-1, 0}};
  } else if (kind == "hypercube") {
    for (int bit = 1; bit < size; bit *= 2) group.cycles.push_back(2);
    for (size_t i = 0; i < group.cycles.size(); ++i) {
      group.steps.emplace_back(group.cycles.size(), 0);
      group.steps.back()[i] = 1;
    }
  } else {
    group.cycles = {size};
    if (kind == "ring") group.steps = {{1}, {-1}};
    if (kind == "exponential")
      for (int step = 1; step < size; step *= 2) group.steps.push_back({step});
    if (kind == "full")
      for (int step = 1; step < size; ++step) group.steps.push_back({step});
  }
  // Back and forth is the same on a cycle of two.
  std::set<std::vector<int>> seen;
  std::vector<std::vector<int>> distinct;
  for (std::vector<int> step : group.steps) {
    for (size_t i = 0; i < step.size(); ++i) step[i] = (step[i] + group.cycles[i]) % group.cycles[i];
    if (seen.insert(step).second) distinct.push_back(std::move(step));
  }
  group.steps = std::move(distinct);
  return group;
}

std::vector<int> coordinates(const Group& group, int rank) {
  std::vector<int> at(group.cycles.size());
  for (size_t i = at.size(); i-- > 0; rank /= group.cycles[i]) at[i] = rank % group.cycles[i];
  return at;
}

int moved(const Group& group, int rank, const std::vector<int>& step, int direction) {
  std::vector<int> at = coordinates(group, rank);
  int place = 0;
  for (size_t i = 0; i < at.size(); ++i)
    place = place * group.cycles[i] + (at[i] + direction * step[i] + group.cycles[i]) % group.cycles[i];
  return place;
}

}  // namespace

std::vector<std::string> mixing_graph_names() {
  return {"ring", "torus", "hypercube", "exponential", "full"};
}

MixingGraph mixing_graph(const std::string& kind, int size) {
  const std::vector<std::string> names = mixing_graph_names();
  if (std::find(names.begin(), names.end(), kind) == names.end())
    throw ConfigError("average.graph = \"{}\". Accepted: {}.", kind, join(names));
  if (!fits(kind, size)) refuse(kind, size);
  const Group group = group_of(kind, size);
  MixingGraph graph{kind, size, {}, {}};
  for (int rank = 0; rank < size; ++rank) {
    graph.to.emplace_back();
    graph.from.emplace_back();
    for (const std::vector<int>& step : group.steps) {
      graph.to.back().push_back(moved(group, rank, step, 1));
      graph.from.back().push_back(moved(group, rank, step, -1));
    }
  }
  return graph;
}

namespace {

// Sums of the characters of the steps, one for each character but the trivial one, which belongs to the mean.
std::vector<std::complex<double>> character_sums(const MixingGraph& graph) {
  const Group group = group_of(graph.kind, graph.size);
  std::vector<std::complex<double>> sums;
  for (int k = 1; k < graph.size; ++k) {
    const std::vector<int> frequency = coordinates(group, k);
    std::complex<double> sum = 0;
    for (const std::vector<int>& step : group.steps) {
      double turns = 0;
      for (size_t i = 0; i < step.size(); ++i)
        turns += static_cast<double>(frequency[i] * step[i]) / group.cycles[i];
      sum += std::polar(1.0, 2 * std::numbers::pi * turns);
    }
    sums.push_back(sum);
  }
  return sums;
}

}  // namespace

// W commutes with the group, hence is normal: its singular values are the absolute values of its eigenvalues.
double contraction(const MixingGraph& graph) {
  double worst = 0;
  for (const std::complex<double>& sum : character_sums(graph))
    worst = std::max(worst, std::abs(1.0 + sum) * graph.weight());
  return worst;
}

// The matrix of a pair is a projection, so the mean square falls by the mean matrix: 1 - L / (n d), with L
// the Laplacian of the graph.
double pair_contraction(const MixingGraph& graph) {
  double worst = 0;
  for (const std::complex<double>& sum : character_sums(graph))
    worst = std::max(worst, 1 - (1 - sum.real() / graph.degree()) / graph.size);
  return worst;
}

}  // namespace yoke::plan
