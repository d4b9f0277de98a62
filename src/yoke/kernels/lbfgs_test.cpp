// Expected numbers were recorded with torch.optim.LBFGS of PyTorch 2.10 in fp64.
#include "yoke/kernels/lbfgs.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "yoke/kernels/strong_wolfe.h"

namespace yoke::kernels {
namespace {

using Point = std::array<double, 4>;

constexpr double kMatrix[4][4] = {{3, 1, 0, .5}, {1, 4, 1, 0}, {0, 1, 2, .25}, {.5, 0, .25, 5}};
constexpr Point kTarget = {1, -2, 3, .5};

// A quadratic with a quartic term, in plain memory.
class Problem final : public LbfgsVectors {
 public:
  Problem(const LbfgsOptions& options, const Point& start)
      : vectors_(static_cast<size_t>(LbfgsVector::count(options))) {
    at(LbfgsVector::kParameters) = start;
  }
  double dot(int64_t a, int64_t b) override {
    double sum = 0;
    for (size_t i = 0; i < 4; ++i) sum += at(a)[i] * at(b)[i];
    return sum;
  }
  double max_abs(int64_t a) override {
    double most = 0;
    for (double one : at(a)) most = std::max(most, std::abs(one));
    return most;
  }
  double sum_abs(int64_t a) override {
    double sum = 0;
    for (double one : at(a)) sum += std::abs(one);
    return sum;
  }
  void scale(int64_t to, double factor, int64_t from) override {
    for (size_t i = 0; i < 4; ++i) at(to)[i] = factor * at(from)[i];
  }
  void add(int64_t to, double factor, int64_t from) override {
    for (size_t i = 0; i < 4; ++i) at(to)[i] += factor * at(from)[i];
  }
  double evaluate() override {
    ++evaluations;
    const Point& x = at(LbfgsVector::kParameters);
    double value = 0;
    for (size_t i = 0; i < 4; ++i) {
      double row = 0;
      for (size_t j = 0; j < 4; ++j) row += kMatrix[i][j] * x[j];
      value += 0.5 * x[i] * row - kTarget[i] * x[i] + 0.1 * std::pow(x[i], 4);
      at(LbfgsVector::kGradient)[i] = row - kTarget[i] + 0.4 * std::pow(x[i], 3);
    }
    return value;
  }
  Point& at(int64_t number) { return vectors_.at(static_cast<size_t>(number)); }

  int evaluations = 0;

 private:
  std::vector<Point> vectors_;
};

struct Recorded {
  bool strong_wolfe;
  Point start;
  double lr;
  int64_t inner_steps;
  Point end;  // after three steps
  int evaluations;
};

const Recorded kRecorded[] = {
    {false,
     {.1, .2, -.3, .4},
     0.8,
     4,
     {0.6163467691413056, -0.9266428915674441, 1.4084884550542065, -0.03205716241339239},
     11},
    {false,
     {10, -20, 15, 8},
     0.8,
     6,
     {0.6163600722805359, -0.9266220846463293, 1.4085083354677868, -0.03204417711342712},
     18},
    {true,
     {.1, .2, -.3, .4},
     0.8,
     4,
     {0.6163467691413056, -0.9266428915674441, 1.4084884550542065, -0.03205716241339239},
     13},
    {true,
     {10, -20, 15, 8},
     0.8,
     6,
     {0.6163367219077351, -0.9266262498318106, 1.40847251894266, -0.03202447368836819},
     21},
    {true,
     {.1, .2, -.3, .4},
     20,
     6,
     {0.6163389857421531, -0.9266416147617965, 1.4084880171442857, -0.0320579353081518},
     20},
    {true,
     {3, -3, 2, 2},
     1e-4,
     6,
     {1.8216370669413287, -1.9181367363664452, 1.7224471201932736, 0.7265271868051985},
     21},
};

TEST(LbfgsSteps, GiveTheNumbersOfTorchOptimWithAndWithoutALineSearch) {
  for (const Recorded& one : kRecorded) {
    const LbfgsOptions options{3, one.inner_steps, one.strong_wolfe};
    Problem problem(options, one.start);
    LbfgsNumbers numbers{.inverse_curvature = std::vector<double>(3)};
    Lbfgs lbfgs(options, problem, numbers);
    for (int step = 0; step < 3; ++step) lbfgs.step(one.lr, problem.evaluate());
    for (size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(problem.at(LbfgsVector::kParameters)[i], one.end[i], 1e-11)
          << one.strong_wolfe << " from " << one.start[0] << " with " << one.lr;
    EXPECT_EQ(problem.evaluations, one.evaluations);
  }
}

TEST(LbfgsSteps, AFlatGradientMovesNothing) {
  const LbfgsOptions options{3, 4, true};
  Problem problem(options, {});
  LbfgsNumbers numbers{.inverse_curvature = std::vector<double>(3)};
  Lbfgs(options, problem, numbers).step(1, 0);  // kGradient is 0
  EXPECT_EQ(problem.evaluations, 0);
  EXPECT_EQ(numbers.iterations, 0);
}

TEST(StrongWolfe, TheMinimumOfACubicStaysInItsLimits) {
  // t^3 - 3t has its minimum at 1.
  const CubicPoint a{0, 0, -3}, b{2, 2, 9};
  EXPECT_NEAR(cubic_minimum(a, b, 0, 2), 1, 1e-12);
  EXPECT_NEAR(cubic_minimum(b, a, 0, 2), 1, 1e-12);
  EXPECT_EQ(cubic_minimum(a, b, 1.5, 2), 1.5);
  EXPECT_EQ(cubic_minimum({0, 0, 1}, {1, 2.0 / 3, 1}, 0, 3), 1.5) << "no minimum: the middle";
}

}  // namespace
}  // namespace yoke::kernels
