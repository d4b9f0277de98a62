// L-BFGS as operations on vectors that somebody else holds: one device, or the shards of parameter servers.
//
// Only numbers pass through here. Results equal those of torch.optim.LBFGS, with or without its strong Wolfe
// line search (after minFunc).
#pragma once

#include <cstdint>
#include <vector>

namespace yoke::kernels {

struct LbfgsOptions {
  int64_t history = 10;
  int64_t inner_steps = 20;  // iterations per step
  bool strong_wolfe = false;
  bool narrow = false;  // vectors are fp32: numbers that a checkpoint holds are rounded to it
};

// Numbers of the vectors. `history` pairs of a change of the gradient and a step lie in a ring.
struct LbfgsVector {
  static constexpr int64_t kParameters = 0, kGradient = 1, kDirection = 2, kPrevious = 3, kFirstPair = 4;
  static int64_t change(int64_t row) { return kFirstPair + 2 * row; }
  static int64_t step(int64_t row) { return kFirstPair + 2 * row + 1; }
  // The line search keeps up to two gradients.
  static int64_t trial(int64_t history, int64_t which) { return kFirstPair + 2 * history + which; }
  static int64_t count(const LbfgsOptions& options) {
    return kFirstPair + 2 * options.history + (options.strong_wolfe ? 2 : 0);
  }
};

// Vectors of equal length, by number.
class LbfgsVectors {
 public:
  virtual ~LbfgsVectors() = default;
  virtual double dot(int64_t a, int64_t b) = 0;
  virtual double max_abs(int64_t a) = 0;
  virtual double sum_abs(int64_t a) = 0;
  virtual void scale(int64_t to, double factor, int64_t from) = 0;  // to = factor * from; may be the same
  virtual void add(int64_t to, double factor, int64_t from) = 0;    // to += factor * from
  // The loss at the parameters; its gradient becomes kGradient.
  virtual double evaluate() = 0;
};

// What a checkpoint holds besides kDirection, kPrevious and the pairs.
struct LbfgsNumbers {
  std::vector<double> inverse_curvature;  // by row
  double scale = 1;                       // of the initial inverse Hessian
  int64_t iterations = 0;
  int64_t remembered = 0;  // pairs
  int64_t oldest = 0;      // row
  double step_length = 0;
};

class Lbfgs {
 public:
  // `vectors` and `numbers` must outlive it; numbers.inverse_curvature has `history` elements.
  Lbfgs(const LbfgsOptions& options, LbfgsVectors& vectors, LbfgsNumbers& numbers);

  // Up to inner_steps iterations from where the loss is `value` and its gradient is in kGradient.
  void step(double lr, double value);

 private:
  int64_t row(int64_t i) const { return (numbers_.oldest + i) % options_.history; }
  double kept(double number) const;
  void find_direction(double lr);
  void remember();
  void two_loop_recursion();

  LbfgsOptions options_;
  LbfgsVectors& vectors_;
  LbfgsNumbers& numbers_;
};

}  // namespace yoke::kernels
