// The sync of collaborative training: gradients of one device, averaged over peers.
//
// Computes with any strategy for one device, which keeps its optimizer: gradients are accumulated in the
// parameters, replaced by the average of all peers, and committed.
#pragma once

#include <vector>

#include "yoke/parallel/collab.h"

namespace yoke::parallel {

class CollabReplica : public collab::Trainer {
 public:
  // Both must outlive it.
  CollabReplica(Strategy& strategy, const models::Model& model, CollabReplicaOptions options);

  int64_t batch() const override { return options_.batch; }
  int64_t elements() const override;
  int64_t state_bytes() const override;
  double compute(int64_t first, int64_t count) override;
  void discard() override;
  void read_gradient(std::span<float> into) override;
  void step(std::span<const float> gradient, int64_t epoch) override;
  std::vector<std::byte> state() override;
  void restore(const std::vector<std::byte>& state, int64_t epoch) override;

 private:
  Strategy& strategy_;
  CollabReplicaOptions options_;
  std::vector<torch::Tensor> parameters_;
  int64_t samples_ = 0;  // in the gradients
};

}  // namespace yoke::parallel
