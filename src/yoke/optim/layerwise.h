// Common base of LARS and LAMB: the step of a layer is scaled by a ratio of two norms over the layer.
//
// Biases and norms (parameters of fewer than two dimensions) are not scaled, as in the published recipes.
#pragma once

#include <map>
#include <vector>

#include "yoke/optim/first_order.h"
#include "yoke/optim/layer_sums.h"

namespace yoke::optim {

class LayerwiseOptimizer : public FirstOrderOptimizer {
 public:
  LayerwiseOptimizer(const OptimizerOptions& options, std::vector<NamedTensor> parameters);

  void update(const LossFunction& loss) override;
  void complete(LayerSums sums);

 protected:
  using Tensors = std::vector<torch::Tensor>;

  // For each tensor of the group, the one whose norm is compared with that of the weights.
  virtual Tensors directions(const UpdateGroup& group) = 0;
  // The ratios, from norms that are not 0 (fp64).
  virtual torch::Tensor ratio(const torch::Tensor& weights, const torch::Tensor& directions,
                              const ParameterSettings& group) const = 0;
  // Updates the group. `ratios`: one scalar for each tensor.
  virtual void move(const UpdateGroup& group, Tensors directions, const Tensors& ratios) = 0;

  void update_dense(const UpdateGroup&) final {}
  void update_sparse(const SparseUpdate& update) override;

  const OptimizerOptions& options() const { return options_; }

 private:
  // Of tensors with gradients: their layers, and whether they are scaled.
  struct Places {
    torch::Tensor layers, scaled;
  };
  const Places& places_of(const std::vector<size_t>& indices);
  torch::Tensor norms_over_layers(const std::vector<UpdateGroup>& groups,
                                  const std::vector<Tensors>& directions);
  Tensors ratios_of(const UpdateGroup& group, const torch::Tensor& norms);

  OptimizerOptions options_;
  LayerSums sums_;
  std::map<std::vector<size_t>, Places> places_;  // made once: a recorded step must not copy from the host
};

}  // namespace yoke::optim
