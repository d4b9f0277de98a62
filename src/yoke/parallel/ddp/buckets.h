// The memory of gradients: buckets that the communicator moves without a copy, and each gradient's place.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "yoke/parallel/ddp/bucket_plan.h"
#include "yoke/parallel/ddp/comm_hook.h"

namespace yoke::parallel {

// One trained parameter whose gradient is dense.
struct Slot {
  std::string name;
  torch::Tensor parameter;
  torch::Tensor view;  // its place in a bucket, once there are buckets
  size_t bucket = 0;
  int arrivals = 0;  // of gradients in this backward()
  int expected = 1;  // more for a parameter that is used in several recomputed parts; 0: never any here
  bool used = true;  // some rank has a gradient
};

struct Bucket {
  GradientBucket data;
  std::vector<size_t> slots;
  size_t waiting = 0;  // slots that have not all their gradients yet
  int phase = 0;       // of the hook, next
  bool done = false;
};

// Memory of the communicator as a tensor of so many elements.
torch::Tensor tensor_over(comm::Memory memory, int64_t elements, const torch::TensorOptions& options);

// `parameter`'s place in `flat`, in its own layout (channels last, for example), so that optimizers walk both
// alike.
torch::Tensor place_in(const torch::Tensor& flat, int64_t offset, const torch::Tensor& parameter);

// Allocates buckets as planned and gives every slot its place; neither has one when they are `passing`.
// `allocate`: where their memory comes from; the communicator's own otherwise.
std::vector<Bucket> make_buckets(std::vector<Slot>& slots, const BucketLayout& layout,
                                 comm::Communicator& comm,
                                 const std::function<comm::Memory(size_t)>& allocate = {});

// Brings the gradient into its place, and with `as_view` lets the parameter's gradient be that place.
void move_into_bucket(Slot& slot, bool as_view);

// Takes the gradient away from the parameter: its elements in the order of the parameter's. Undefined where
// there is none.
torch::Tensor take_gradient(Slot& slot);

// The place as a tensor of its own, for a parameter's gradient.
torch::Tensor gradient_in(const Slot& slot);

}  // namespace yoke::parallel
