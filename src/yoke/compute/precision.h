// Number formats and autocast.
#pragma once

#include <torch/types.h>

#include <string>

namespace yoke {

enum class Precision { kFp32, kTf32, kBf16, kFp16 };

Precision parse_precision(const std::string& name);  // throws ConfigError
std::string to_string(Precision precision);

// While it exists, operators on `device` of this thread run in `precision` where that is safe (matrix
// products, convolutions) and in fp32 otherwise (reductions, losses), by LibTorch's autocast. Guards nest;
// the destructor restores the previous state and clears the cast cache when the outermost guard ends.
class AutocastGuard {
 public:
  AutocastGuard(torch::DeviceType device, Precision precision);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  torch::DeviceType device_;
  bool was_enabled_;
  torch::ScalarType previous_type_;
  bool previous_cache_;
};

// `x` in the type that autocast uses for matrix products on its device; `x` itself if autocast is off. For
// functions with their own backward, which autocast does not see: cast before they are applied, where
// autograd records it.
torch::Tensor as_autocast(const torch::Tensor& x);

// tf32 for fp32 matrix products and convolutions on CUDA, process-wide. Throws ConfigError if the device does
// not support it.
void set_tf32(bool enabled);

}  // namespace yoke
