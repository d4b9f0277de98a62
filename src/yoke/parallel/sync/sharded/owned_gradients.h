// The gradients of the pieces that this rank owns, and what ranks agree on before they update them: whether
// all are finite, and the norm of the whole model's gradient.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "yoke/optim/grad_scaler.h"
#include "yoke/parallel/common/one_device.h"
#include "yoke/parallel/sync/sharded/piece_source.h"

namespace yoke::parallel {

class OwnedGradients {
 public:
  // `optimizer` is of source.owned. All must outlive this.
  OwnedGradients(PieceSource source, optim::Optimizer& optimizer, optim::GradScaler& scaler,
                 const OneDeviceOptions& options);

  // The gradient of piece number `index`; undefined: none.
  void set(size_t index, const torch::Tensor& gradient) { owned_[index].mutable_grad() = gradient; }

  // Unscales, clips and updates, unless a gradient of any rank is not finite. `updated` runs after the
  // optimizer. Collective.
  CommitResult commit(const CommitOptions& options, const std::function<void()>& updated = {});

  std::vector<StatePiece> pieces() const;

  // Every rank looks at what it owns; the first in the order of the model is named. Collective.
  std::optional<std::string> first_non_finite() const;

 private:
  bool unscale();
  torch::Tensor norm() const;

  PieceSource source_;
  optim::Optimizer& optimizer_;
  optim::GradScaler& scaler_;
  torch::Device device_;  // of the communicator's tensors; pieces may lie in host memory
  bool scaled_;           // gradients carry a loss scale
  SliceAxis slices_;
  double clip_norm_;
  std::vector<torch::Tensor> owned_;
  std::vector<torch::Tensor> counted_;  // of those, in the norm
};

}  // namespace yoke::parallel
