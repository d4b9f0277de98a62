// Memory of gradients: buckets that the communicator moves without a copy, and each gradient's place in them.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "yoke/parallel/common/ddp/bucket_plan.h"
#include "yoke/parallel/common/ddp/comm_hook.h"

namespace yoke::parallel {

// A trained parameter with a dense gradient.
struct Slot {
  std::string name;
  torch::Tensor parameter;
  torch::Tensor view;  // its place in a bucket, once there are buckets
  size_t bucket = 0;
  int arrivals = 0;  // gradients received in this backward()
  // More than 1 for a parameter used in several recomputed parts; 0: never any on this rank
  int expected = 1;
  bool used = true;  // some rank has a gradient
};

struct Bucket {
  GradientBucket data;
  std::vector<size_t> slots;
  size_t waiting = 0;  // slots without all their gradients
  int phase = 0;       // next phase of the hook
  bool done = false;
};

// Memory of the communicator as a tensor of `elements` elements.
torch::Tensor tensor_over(comm::Memory memory, int64_t elements, const torch::TensorOptions& options);

// `parameter`'s place in `flat`, with its strides (e.g. channels last), so that optimizers traverse both
// alike.
torch::Tensor place_in(const torch::Tensor& flat, int64_t offset, const torch::Tensor& parameter);

// Allocates buckets as planned and gives every slot its place; neither has memory if the layout is `passing`.
// `allocate`: allocator; by default the communicator's.
std::vector<Bucket> make_buckets(std::vector<Slot>& slots, const BucketLayout& layout,
                                 comm::Communicator& comm,
                                 const std::function<comm::Memory(size_t)>& allocate = {});

// Copies the gradient to its place; with `as_view` the parameter's gradient becomes that place.
void move_into_bucket(Slot& slot, bool as_view);

// Removes the gradient from the parameter: flat, in the parameter's memory order. Undefined if there is none.
torch::Tensor take_gradient(Slot& slot);

// The place as a tensor that can be a parameter's gradient.
torch::Tensor gradient_in(const Slot& slot);

}  // namespace yoke::parallel
