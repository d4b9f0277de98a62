// The weights that are cut over ranks, found again when an operator uses them.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/types.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "yoke/parallel/placement/slice/tensor_axis.h"
#include "yoke/plan/tensor/layer_cuts.h"

namespace yoke::parallel {

struct SlicedWeight {
  std::shared_ptr<TensorAxis> axis;
  plan::LayerCut cut;
  torch::Tensor weight;              // the parameter itself; its memory is the slice
  plan::CutRange part;               // of a vocabulary
  int64_t total = 0;                 // rows of the whole vocabulary
  std::vector<int64_t> input_sizes;  // of the slices to be gathered, in units, of each rank
  mutable std::atomic<bool> used = false;
  std::thread::id rank = std::this_thread::get_id();  // of ranks that are threads

  const std::string& layer() const { return cut.layer; }
  std::string gradient_name() const { return "grad of " + cut.layer; }
};

using SlicedWeightRef = std::shared_ptr<const SlicedWeight>;

// For an autograd function's saved_data.
c10::IValue to_value(const SlicedWeightRef& weight);
SlicedWeightRef from_value(const c10::IValue& value);

// Thread-safe. Entries of all ranks of this process.
class SlicedWeights {
 public:
  static void add(const SlicedWeightRef& weight);
  static void remove(const SlicedWeightRef& weight);
  // Of a parameter or a transposed view of one; null: of none.
  static SlicedWeightRef find(const torch::Tensor& tensor);
};

}  // namespace yoke::parallel
