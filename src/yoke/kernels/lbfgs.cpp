#include "yoke/kernels/lbfgs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "yoke/kernels/strong_wolfe.h"

namespace yoke::kernels {
namespace {

using Vector = LbfgsVector;

constexpr double kGradientTolerance = 1e-7;
constexpr double kChangeTolerance = 1e-9;
constexpr double kLeastCurvature = 1e-10;

}  // namespace

Lbfgs::Lbfgs(const LbfgsOptions& options, LbfgsVectors& vectors, LbfgsNumbers& numbers)
    : options_(options), vectors_(vectors), numbers_(numbers) {}

void Lbfgs::step(double lr, double value) {
  if (vectors_.max_abs(Vector::kGradient) <= kGradientTolerance) return;
  const int64_t most_evaluations = options_.inner_steps * 5 / 4;
  int64_t evaluations = 1;
  for (int64_t inner = 1;; ++inner) {
    find_direction(lr);
    const double slope = vectors_.dot(Vector::kGradient, Vector::kDirection);
    if (slope > -kChangeTolerance) break;
    const double previous = value;
    if (options_.strong_wolfe) {
      const LineSearchResult found =
          strong_wolfe(vectors_, options_.history, {numbers_.step_length, value, slope});
      numbers_.step_length = found.t;
      value = found.value;
      evaluations += found.evaluations;
    } else {
      vectors_.add(Vector::kParameters, numbers_.step_length, Vector::kDirection);
    }
    if (inner == options_.inner_steps) break;
    if (!options_.strong_wolfe) {
      value = vectors_.evaluate();
      ++evaluations;
    }
    if (evaluations >= most_evaluations || vectors_.max_abs(Vector::kGradient) <= kGradientTolerance ||
        vectors_.max_abs(Vector::kDirection) * numbers_.step_length <= kChangeTolerance ||
        std::abs(value - previous) < kChangeTolerance) {
      break;
    }
  }
}

double Lbfgs::kept(double number) const {
  return options_.narrow ? static_cast<double>(static_cast<float>(number)) : number;
}

void Lbfgs::find_direction(double lr) {
  if (numbers_.iterations++ == 0) {
    vectors_.scale(Vector::kDirection, -1, Vector::kGradient);
    numbers_.step_length = std::min(1.0, 1.0 / vectors_.sum_abs(Vector::kGradient)) * lr;
  } else {
    remember();
    two_loop_recursion();
    numbers_.step_length = lr;
  }
  vectors_.scale(Vector::kPrevious, 1, Vector::kGradient);
}

// kPrevious becomes the change of the gradient: it is not needed any more.
void Lbfgs::remember() {
  vectors_.scale(Vector::kPrevious, -1, Vector::kPrevious);
  vectors_.add(Vector::kPrevious, 1, Vector::kGradient);
  const double curvature = vectors_.dot(Vector::kPrevious, Vector::kDirection) * numbers_.step_length;
  if (!(curvature > kLeastCurvature)) return;
  if (numbers_.remembered == options_.history) {
    numbers_.oldest = row(1);
  } else {
    ++numbers_.remembered;
  }
  const int64_t newest = row(numbers_.remembered - 1);
  vectors_.scale(Vector::change(newest), 1, Vector::kPrevious);
  vectors_.scale(Vector::step(newest), numbers_.step_length, Vector::kDirection);
  numbers_.inverse_curvature[static_cast<size_t>(newest)] = kept(1 / curvature);
  numbers_.scale = kept(curvature / vectors_.dot(Vector::kPrevious, Vector::kPrevious));
}

// Nocedal & Wright, algorithm 7.4: the approximate inverse Hessian times the negative gradient.
void Lbfgs::two_loop_recursion() {
  std::vector<double> alpha(static_cast<size_t>(numbers_.remembered));
  vectors_.scale(Vector::kDirection, -1, Vector::kGradient);
  for (int64_t i = numbers_.remembered - 1; i >= 0; --i) {
    double& one = alpha[static_cast<size_t>(i)];
    one = vectors_.dot(Vector::step(row(i)), Vector::kDirection) *
          numbers_.inverse_curvature[static_cast<size_t>(row(i))];
    vectors_.add(Vector::kDirection, -one, Vector::change(row(i)));
  }
  vectors_.scale(Vector::kDirection, numbers_.scale, Vector::kDirection);
  for (int64_t i = 0; i < numbers_.remembered; ++i) {
    const double beta = vectors_.dot(Vector::change(row(i)), Vector::kDirection) *
                        numbers_.inverse_curvature[static_cast<size_t>(row(i))];
    vectors_.add(Vector::kDirection, alpha[static_cast<size_t>(i)] - beta, Vector::step(row(i)));
  }
}

}  // namespace yoke::kernels
