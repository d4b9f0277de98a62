#include "yoke/compute/precision.h"

#include <ATen/autocast_mode.h>

#include <utility>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/compute/device_cuda.h"
#include "yoke/compute/torch_version.h"

namespace yoke {
namespace {

constexpr std::pair<const char*, Precision> kNames[] = {{"fp32", Precision::kFp32},
                                                        {"tf32", Precision::kTf32},
                                                        {"bf16", Precision::kBf16},
                                                        {"fp16", Precision::kFp16}};

}  // namespace

Precision parse_precision(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [known, precision] : kNames) {
    if (name == known) return precision;
    names.push_back(known);
  }
  throw ConfigError("train.precision = \"{}\": unknown precision. Accepted: {}", name, join(names));
}

std::string to_string(Precision precision) {
  for (const auto& [name, known] : kNames) {
    if (precision == known) return name;
  }
  YOKE_CHECK(false, "precision {}", static_cast<int>(precision));
}

AutocastGuard::AutocastGuard(torch::DeviceType device, Precision precision)
    : device_(device),
      was_enabled_(at::autocast::is_autocast_enabled(device)),
      previous_type_(at::autocast::get_autocast_dtype(device)),
      previous_cache_(at::autocast::is_autocast_cache_enabled()) {
  bool low = precision == Precision::kBf16 || precision == Precision::kFp16;
  at::autocast::increment_nesting();
  at::autocast::set_autocast_enabled(device, low);
  at::autocast::set_autocast_cache_enabled(true);
  if (low) {
    at::autocast::set_autocast_dtype(device, precision == Precision::kBf16 ? torch::kBFloat16 : torch::kHalf);
  }
}

AutocastGuard::~AutocastGuard() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, previous_type_);
  at::autocast::set_autocast_cache_enabled(previous_cache_);
}

torch::Tensor as_autocast(const torch::Tensor& x) {
  torch::DeviceType device = x.device().type();
  if (!at::autocast::is_autocast_enabled(device)) return x;
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), x, device);
}

void set_tf32(bool enabled) {
  if (enabled && !compute::cuda::has_tf32()) {
    throw ConfigError(
        "train.precision = tf32: it needs a CUDA device of compute capability 8.0 or higher, and there is "
        "none "
        "here. Hint: fp32 or bf16");
  }
  compute::allow_tf32(enabled);
}

}  // namespace yoke
