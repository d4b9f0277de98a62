// Layers on slices of their weights, as autograd functions. They are what intercepted operators become.
//
// Columns: the input is whole, the output a slice; in backward the sum of the input's gradient over ranks
// travels while the weight's gradient is computed. Rows: the input is a slice; the sum of the outputs over
// ranks leaves, to which the bias is added once.
#pragma once

#include <torch/types.h>

#include "yoke/parallel/placement/slice/sliced_weights.h"

namespace yoke::parallel {

struct SlicedConvShape {
  std::vector<int64_t> stride, padding, dilation;
  int64_t groups = 1;
};

// x [.., in]. `as_linear`: the weight is stored [out, in], otherwise [in, out]. Columns, rows, vocabulary.
torch::Tensor sliced_linear(const SlicedWeightRef& weight, const torch::Tensor& x, const torch::Tensor& bias,
                            bool as_linear);

// x [N, its slice, ..] with the slices of all ranks in dim 1.
torch::Tensor gathered(const SlicedWeightRef& weight, const torch::Tensor& x);

torch::Tensor sliced_conv2d(const SlicedWeightRef& weight, const torch::Tensor& x, const torch::Tensor& bias,
                            const SlicedConvShape& shape);

// Rows of a vocabulary that is cut; rank by rank those it does not hold are zero, and the sum leaves.
torch::Tensor sliced_embedding(const SlicedWeightRef& weight, const torch::Tensor& indices,
                               int64_t padding_index);
torch::Tensor sliced_embedding_bag(const SlicedWeightRef& weight, const torch::Tensor& indices,
                                   const torch::Tensor& offsets, const torch::Tensor& sample_weights,
                                   bool include_last_offset);

// Cross entropy of a slice of the logits [rows, part of the vocabulary] against int64 targets [rows] of the
// whole vocabulary: two exchanges of one and two numbers a row. `reduction` as at::Reduction.
torch::Tensor sliced_cross_entropy(const SlicedWeightRef& head, const torch::Tensor& logits,
                                   const torch::Tensor& target, int64_t reduction, int64_t ignored);

}  // namespace yoke::parallel
