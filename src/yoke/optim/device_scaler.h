// A GradScaler whose state is on the device: steps are scaled, checked and skipped there, and the host learns
// of it later. For recorded steps.
//
//   scaler.load();                                     // before the first step, and after a restore
//   (loss * scaler.scale()).backward();
//   scaler.inspect(parameters); optimizer.update({}); scaler.update();  // may all be recorded and replayed
//   scaler.post();  ...  scaler.collect();             // the host's copy, later
#pragma once

#include <c10/core/Event.h>
#include <torch/types.h>

#include <optional>
#include <vector>

#include "yoke/optim/grad_scaler.h"
#include "yoke/optim/scaled_update.h"

namespace yoke::optim {

// Not thread-safe. Its results equal GradScaler's.
class DeviceScaler {
 public:
  // `host` receives the state and must outlive it. `clip_norm`: of the unscaled gradients; 0: no clipping.
  DeviceScaler(GradScaler& host, torch::Device device, double clip_norm, GradScalerOptions rules = {});

  // Scalars on the device.
  const torch::Tensor& scale() const { return scale_; }
  const ScaledUpdate& scaled_update() const { return scaled_; }

  // Sets scaled_update() for the gradients of `parameters`, which stay scaled.
  void inspect(const std::vector<torch::Tensor>& parameters);
  // Adjusts the scale after a step, skipped or not.
  void update();

  // From the host's scaler to the device.
  void load();
  // Starts to bring the state after update() to the host.
  void post();
  // Waits for the last post() and hands it to the host's scaler. Returns whether that step was skipped; false
  // if there is nothing new.
  bool collect();

 private:
  GradScaler& host_;
  double clip_norm_;
  GradScalerOptions rules_;
  torch::Tensor scale_, tracker_;
  ScaledUpdate scaled_;
  torch::Tensor news_;                 // scale, tracker, skipped
  torch::Tensor mailbox_;              // of the host
  std::optional<c10::Event> arrived_;  // CUDA
  bool posted_ = false;
};

}  // namespace yoke::optim
