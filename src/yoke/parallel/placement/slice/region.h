// Which random numbers a rank draws: dropout between the layers of a pair acts on slices, and must differ
// over ranks; elsewhere all ranks hold the same activations and must draw the same.
#pragma once

#include <functional>
#include <memory>

#include "yoke/parallel/placement/slice/tensor_axis.h"

namespace yoke::parallel {

// Where the forward pass of this thread is: inside of a pair (or of a sequence's shard), or outside (null).
void set_region(std::shared_ptr<TensorAxis> axis);
const std::shared_ptr<TensorAxis>& region();

// The axis along which this thread's sequences are sharded: null unless set.
void set_sequence_axis(std::shared_ptr<TensorAxis> axis);
const std::shared_ptr<TensorAxis>& sequence_axis();

// Runs `draw` with the default generators in a state of this rank's own, which follows from one number of the
// common stream: that goes on alike on all ranks, and recomputation meets the same state again.
torch::Tensor with_random_of_rank(int rank, torch::Device device, const std::function<torch::Tensor()>& draw);

}  // namespace yoke::parallel
