// Applies a tensor plan to the layers of a model: the slice of each weight on each rank.
//
// Slices may be uneven: rank r of T holds units r * n / T to (r + 1) * n / T, where a unit is an output
// feature, a channel, an attention head or a row of a vocabulary.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/plan/tensor/tensor_plan.h"

namespace yoke::plan {

// A layer with its sizes on one device.
struct TensorLayer {
  enum class Kind : uint8_t { kLinear, kConv, kEmbedding, kBatchNorm, kLayerNorm };
  std::string name;
  Kind kind = Kind::kLinear;
  int64_t in = 0;  // features or channels; embedding: rows
  int64_t out = 0;
  int64_t groups = 1;  // of a convolution
};

struct LayerCut {
  std::string layer;
  TensorCut cut = TensorCut::kReplicated;
  bool gathered = false;
  int64_t units = 0;        // in the dimension that is split
  int64_t blocks = 1;       // adjacent in it, each split alike: 3 for fused queries, keys and values
  int64_t input_units = 0;  // of slices that are gathered
};

struct CutRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const CutRange&) const = default;
};

// Part `rank` of `count` units.
CutRange cut_part(int64_t count, int ranks, int rank);

// The slice of `rank` in a dimension of `size` elements: one range per block.
std::vector<CutRange> ranges_of(const LayerCut& cut, int64_t size, int ranks, int rank);

// The cut of each layer that is not replicated, in the order of `layers`, which is that of the forward pass:
// rows take the slices of the preceding columns, and a BatchNorm in between follows its channels. Throws
// ConfigError: a pattern matches no layer, two patterns disagree, columns without rows or rows without
// columns, a layer that cannot be split this way, more ranks than units (with the numbers that fit).
std::vector<LayerCut> cut_layers(const TensorPlan& plan, const std::vector<TensorLayer>& layers, int ranks);

// Pairs consecutive layers as columns and rows: right for chains (perceptrons, AlexNet, VGG). A last layer
// without partner is replicated.
TensorPlan pair_up(const std::vector<TensorLayer>& layers);

// The plan of a built-in model, given its layers and number of heads. Throws ConfigError, naming the models
// that have one.
TensorPlan tensor_preset(const std::string& model, const std::vector<TensorLayer>& layers, int64_t heads = 0);

// AlexNet on two devices as in its paper: layers 2, 4 and 5 see the channels of their own device, layer 3 and
// the linear layers see all. For the model with `groups` = 2.
TensorPlan alexnet_of_two();

}  // namespace yoke::plan
