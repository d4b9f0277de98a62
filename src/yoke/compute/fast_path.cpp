#include "yoke/compute/fast_path.h"

#include <ATen/autocast_mode.h>

namespace yoke::compute {

bool plain_float(const torch::Tensor& tensor) {
  return tensor.defined() && tensor.device().is_cpu() && tensor.scalar_type() == at::kFloat &&
         tensor.layout() == at::kStrided && !tensor.is_neg() && !at::autocast::is_autocast_enabled(at::kCPU);
}

ImageFormat image_format(const torch::Tensor& x) {
  if (x.is_contiguous()) return ImageFormat::kPlanes;
  return x.is_contiguous(at::MemoryFormat::ChannelsLast) ? ImageFormat::kPixels : ImageFormat::kOther;
}

void require_first_derivative(const char* what) {
  if (!at::GradMode::is_enabled()) return;
  throw ConfigError("{}: its CPU kernel has no second derivative. Use fp64 for second derivatives.", what);
}

}  // namespace yoke::compute
