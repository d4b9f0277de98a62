// One worker's share of an L1-regularised logistic regression, by blocks of features.
//
//   minimise  sum_i log(1 + exp(-y_i x_i w)) + l1 |w|_1
//
// Holds its examples by columns, and the margins y_i x_i w for the weights it knows. Block b of B has the
// keys in block_range(b). Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "yoke/ps/blocks/examples.h"
#include "yoke/ps/sparse/range_clock.h"

namespace yoke::ps::blocks {

class LocalProblem {
 public:
  // Throws ConfigError unless 1 <= blocks <= keys and all keys are below `keys`.
  LocalProblem(const Examples& examples, Key keys, int64_t blocks);

  int64_t blocks() const { return blocks_; }
  sparse::KeyRange block_range(int64_t block) const;
  // The keys of the block that occur in an example here, ascending.
  std::span<const Key> keys(int64_t block) const;
  std::span<const double> weights(int64_t block) const;

  // First derivative g and curvature u of the loss for each key of the block, as pairs. The quadratic model
  //   loss(w + d) <= loss(w) + sum_k (g_k d_k + u_k d_k^2 / 2)
  // holds for changes d of this block that move no margin by more than 1: an example's curvature is shared
  // among the features that it has in the block.
  void derivatives(int64_t block, std::vector<double>& pairs);
  // New weights of the block's keys: moves the margins.
  void set_weights(int64_t block, std::span<const double> weights);
  // Back to weights of 0.
  void reset();
  size_t examples() const { return margins_.size(); }
  size_t elements() const { return elements_.size(); }
  // Of this share, without the penalty, at the weights it knows.
  double loss() const;
  // How much examples of one block overlap with another block, compared with itself: a step computed without
  // the changes of `n` other blocks is safe if its curvature is multiplied by 1 + n overlap().
  double overlap() const { return overlap_; }
  // Bytes held.
  size_t bytes() const;

 private:
  struct Columns {
    size_t begin, end;  // of the features
  };
  struct Element {
    uint32_t example;
    float value;  // times the label
  };
  double measure_overlap() const;
  Columns columns(int64_t block) const {
    return {starts_[static_cast<size_t>(block)], starts_[static_cast<size_t>(block) + 1]};
  }

  Key all_keys_;
  int64_t blocks_;
  std::vector<Key> keys_;        // of the features here, ascending
  std::vector<size_t> offsets_;  // of each feature's elements
  std::vector<Element> elements_;
  std::vector<size_t> starts_;   // by block: its first feature
  std::vector<double> weights_;  // by feature
  std::vector<double> margins_;  // by example
  std::vector<float> shares_;    // by example: scratch, zeros between calls
  double overlap_ = 0;
};

}  // namespace yoke::ps::blocks
