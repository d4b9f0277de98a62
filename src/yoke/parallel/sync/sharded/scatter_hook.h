// A bucket's way where every rank wants its own part of the average only: one reduce_scatter, in place or,
// with ddp.hook = "fp16" or "bf16", of a narrow copy; with other hooks the whole average, of which it keeps
// its part.
#pragma once

#include "yoke/parallel/sync/sharded/shard_hook.h"

namespace yoke::parallel {

class ScatterHook : public ShardHook {
 public:
  explicit ScatterHook(std::optional<torch::ScalarType> cast = std::nullopt) : cast_(cast) {}
  bool advance(GradientBucket& bucket, int phase) override;
  void begin_step() override { parts_.clear(); }  // a bucket is overwritten by the next backward()

 private:
  std::optional<torch::ScalarType> cast_;
  std::vector<torch::Tensor> narrow_;  // copies, by bucket
};

class WholeHook : public ShardHook {
 public:
  explicit WholeHook(std::shared_ptr<CommHook> whole) : whole_(std::move(whole)) {}
  bool advance(GradientBucket& bucket, int phase) override;
  void begin_step() override { parts_.clear(); }
  void forget_buckets() override { whole_->forget_buckets(); }

 private:
  std::shared_ptr<CommHook> whole_;
};

// For gradients of ZeRO 1 (`ddp.hook`: any) or, with `window_bytes`, ZeRO 2 (none, fp16 or bf16).
std::shared_ptr<ShardHook> make_shard_hook(const std::string& hook,
                                           std::optional<int64_t> window_bytes = std::nullopt);

}  // namespace yoke::parallel
