// A bucket without memory of its own: its gradients travel through a few small windows, as backward() made
// them, and only this rank's part of the averages is kept.
//
// A window holds the same run of elements of every rank's part, side by side, so that one reduce_scatter
// gives each rank its own. How large gradients are does not matter: a large one takes several windows in
// turn.
#pragma once

#include <array>
#include <optional>

#include "yoke/comm/give_up.h"
#include "yoke/parallel/sync/sharded/shard_hook.h"

namespace yoke::parallel {

class WindowHook : public ShardHook {
 public:
  static constexpr size_t kWindows = 3;  // one fills, one travels, one is emptied

  // `cast`: gradients travel in this type.
  explicit WindowHook(int64_t window_bytes, std::optional<torch::ScalarType> cast = std::nullopt)
      : window_bytes_(window_bytes), cast_(cast) {}
  ~WindowHook() override;

  // Phase 0 returns when all of `parts` have been read.
  bool advance(GradientBucket& bucket, int phase) override;
  // Lets go of the parts; those of later backward() passes are added up.
  void begin_step() override { parts_.clear(); }

 private:
  struct Window {
    comm::Memory memory;
    comm::Pending pending;
    torch::Tensor own;   // this rank's row of it
    torch::Tensor into;  // where the averages go; undefined: the window is free
    bool add = false;
    bool last = false;  // of its bucket
    GradientBucket* bucket = nullptr;
  };
  torch::TensorOptions wire(const GradientBucket& bucket) const;
  void send(GradientBucket& bucket, const torch::Tensor& into, int64_t begin, bool add);
  static void empty(Window& window);

  int64_t window_bytes_;
  std::optional<torch::ScalarType> cast_;
  std::optional<comm::GiveUpOnException> give_up_;  // once the communicator is known, which outlives it
  std::array<Window, kWindows> windows_;
  size_t next_ = 0;
};

}  // namespace yoke::parallel
