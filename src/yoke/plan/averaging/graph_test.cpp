#include "yoke/plan/averaging/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "yoke/base/error.h"

namespace yoke::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<double> mixed(const MixingGraph& graph, const std::vector<double>& x) {
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] = x[i];
    for (int from : graph.from[i]) y[i] += x[static_cast<size_t>(from)];
    y[i] *= graph.weight();
  }
  return y;
}

double mean(const std::vector<double>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

double distance(const std::vector<double>& x) {
  double sum = 0;
  for (double one : x) sum += (one - mean(x)) * (one - mean(x));
  return std::sqrt(sum);
}

struct Place {
  const char* kind;
  int size;
};
const Place kPlaces[] = {{"ring", 2},        {"ring", 3},         {"ring", 8},        {"ring", 17},
                         {"torus", 4},       {"torus", 6},        {"torus", 9},       {"torus", 64},
                         {"hypercube", 2},   {"hypercube", 8},    {"exponential", 2}, {"exponential", 6},
                         {"exponential", 8}, {"exponential", 33}, {"full", 2},        {"full", 7}};

TEST(MixingGraph, EverySendHasItsReceive) {
  for (const auto& [kind, size] : kPlaces) {
    MixingGraph graph = mixing_graph(kind, size);
    for (int rank = 0; rank < size; ++rank) {
      const auto& to = graph.to[static_cast<size_t>(rank)];
      EXPECT_EQ(static_cast<int>(to.size()), graph.degree()) << kind << size;
      for (int peer : to) {
        EXPECT_NE(peer, rank) << kind << size;
        const auto& from = graph.from[static_cast<size_t>(peer)];
        EXPECT_EQ(std::count(from.begin(), from.end(), rank), 1) << kind << size;
      }
    }
  }
}

TEST(MixingGraph, ARoundKeepsTheMean) {
  for (const auto& [kind, size] : kPlaces) {
    std::vector<double> x(static_cast<size_t>(size));
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(3.0 * static_cast<double>(i) + 1);
    EXPECT_NEAR(mean(mixed(mixing_graph(kind, size), x)), mean(x), 1e-12) << kind << size;
  }
}

// The rate at which any start but an unlucky one ends up falling.
TEST(MixingGraph, TheDistanceFromTheMeanFallsByTheContraction) {
  for (const auto& [kind, size] : kPlaces) {
    MixingGraph graph = mixing_graph(kind, size);
    const double rate = contraction(graph);
    std::vector<double> x(static_cast<size_t>(size));
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(5.0 * static_cast<double>(i * i) + 1);
    const double start = distance(x);
    constexpr int kRounds = 40;
    for (int round = 1; round <= kRounds; ++round) {
      const double before = distance(x);
      x = mixed(graph, x);
      EXPECT_LE(distance(x), rate * before + 1e-12 * start) << kind << size;
      // Rounding keeps it from falling for ever.
      if (round >= 30 && distance(x) > 1e-9 * start) {
        EXPECT_NEAR(distance(x) / before, rate, 0.05 * rate + 1e-12) << kind << size << " round " << round;
      }
    }
  }
}

TEST(MixingGraph, ContractionsOfTheBooks) {
  const double pi = std::numbers::pi;
  EXPECT_NEAR(contraction(mixing_graph("ring", 2)), 0, 1e-12);
  EXPECT_NEAR(contraction(mixing_graph("ring", 8)), (1 + 2 * std::cos(2 * pi / 8)) / 3, 1e-12);
  EXPECT_NEAR(contraction(mixing_graph("hypercube", 8)), 0.5, 1e-12);  // 1 - 2 / (d + 1)
  EXPECT_NEAR(contraction(mixing_graph("hypercube", 64)), 1 - 2.0 / 7, 1e-12);
  EXPECT_NEAR(contraction(mixing_graph("exponential", 8)), 0.5, 1e-12);  // Ying et al. 2021, even sizes
  EXPECT_NEAR(contraction(mixing_graph("exponential", 64)), 1 - 2.0 / 7, 1e-12);
  EXPECT_NEAR(contraction(mixing_graph("torus", 64)), (3 + 2 * std::cos(2 * pi / 8)) / 5, 1e-12);
}

// Over all pairs, each as likely as any other: the slowest mode of the mean matrix falls by exactly that.
TEST(MixingGraph, ARandomPairLeavesTheSquareOfTheDistanceByThePairContraction) {
  for (const auto& [kind, size] : kPlaces) {
    MixingGraph graph = mixing_graph(kind, size);
    const double rate = pair_contraction(graph);
    auto after_a_pair = [&](const std::vector<double>& x) {
      double sum = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        for (int other : graph.to[i]) {
          std::vector<double> y = x;
          y[i] = y[static_cast<size_t>(other)] = (x[i] + x[static_cast<size_t>(other)]) / 2;
          sum += distance(y) * distance(y);
        }
      }
      return sum / (size * graph.degree());
    };
    std::vector<double> x(static_cast<size_t>(size));
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(5.0 * static_cast<double>(i * i) + 1);
    EXPECT_LE(after_a_pair(x), rate * distance(x) * distance(x) + 1e-12) << kind << size;
    if (std::string(kind) == "ring" && size > 2) {
      for (size_t i = 0; i < x.size(); ++i)
        x[i] = std::cos(2 * std::numbers::pi * static_cast<double>(i) / size);
      EXPECT_NEAR(after_a_pair(x), rate * distance(x) * distance(x), 1e-12) << kind << size;
    }
  }
  EXPECT_NEAR(pair_contraction(mixing_graph("full", 8)), 1 - 1.0 / 7, 1e-12);        // 1 - 1 / (n - 1)
  EXPECT_NEAR(pair_contraction(mixing_graph("hypercube", 8)), 1 - 1.0 / 12, 1e-12);  // 1 - 2 / (n log2 n)
}

TEST(MixingGraph, ASizeThatDoesNotFitNamesTheNearest) {
  EXPECT_THAT([] { mixing_graph("hypercube", 6); },
              ThrowsMessage<ConfigError>(HasSubstr("a power of two. Nearest: 4 or 8.")));
  EXPECT_THAT([] { mixing_graph("torus", 7); }, ThrowsMessage<ConfigError>(HasSubstr("Nearest: 6 or 8.")));
  EXPECT_THAT([] { mixing_graph("torus", 3); }, ThrowsMessage<ConfigError>(HasSubstr("Nearest: 4.")));
  EXPECT_THAT([] { mixing_graph("ring", 1); }, ThrowsMessage<ConfigError>(HasSubstr("at least 2")));
  EXPECT_THAT([] { mixing_graph("star", 4); }, ThrowsMessage<ConfigError>(HasSubstr("hypercube")));
}

}  // namespace
}  // namespace yoke::plan
