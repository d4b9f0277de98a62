#include "yoke/compute/recompute_state.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include <mutex>
#include <set>

#include "yoke/base/error.h"
#include "yoke/compute/device_cuda.h"

namespace yoke {
namespace {

constexpr std::array<torch::DeviceType, 2> kAutocastDevices = {torch::kCPU, torch::kCUDA};

}  // namespace

RandomState::RandomState(const std::vector<torch::Tensor>& tensors) {
  std::set<int> devices;
  for (const torch::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.is_cuda()) devices.insert(tensor.get_device());
  }
  generators_.push_back(at::globalContext().defaultGenerator({torch::kCPU}));
  for (int device : devices) {
    if (auto offset = compute::cuda::random_offset_in_capture(device)) {
      offsets_in_capture_.emplace_back(device, *offset);
    } else {
      auto index = static_cast<c10::DeviceIndex>(device);
      generators_.push_back(at::globalContext().defaultGenerator({torch::kCUDA, index}));
    }
  }
  capture();
}

RandomState::RandomState(std::vector<at::Generator> generators) : generators_(std::move(generators)) {
  capture();
}

void RandomState::capture() {
  for (at::Generator& generator : generators_) {
    std::lock_guard<std::mutex> lock(generator.mutex());
    states_.push_back(generator.get_state());
  }
}

void RandomState::restore() const {
  for (size_t i = 0; i < generators_.size(); ++i) {
    at::Generator generator = generators_[i];
    std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(states_[i]);
  }
}

RandomState RandomState::again() const {
  return RandomState(generators_);
}

void RandomState::check_capture() const {
  for (auto [device, offset] : offsets_in_capture_) {
    if (compute::cuda::random_offset_in_capture(device) == offset) continue;
    throw ConfigError(
        "train.recompute: a block draws random numbers (dropout), which cannot be replayed in a CUDA graph. "
        "Hint: train.cuda_graph = false, or model.dropout = 0");
  }
}

AutocastState::AutocastState() : cache_(at::autocast::is_autocast_cache_enabled()) {
  for (size_t i = 0; i < kAutocastDevices.size(); ++i) {
    torch::DeviceType device = kAutocastDevices[i];
    devices_[i] = {at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device)};
  }
}

void AutocastState::restore() const {
  for (size_t i = 0; i < kAutocastDevices.size(); ++i) {
    at::autocast::set_autocast_enabled(kAutocastDevices[i], devices_[i].enabled);
    at::autocast::set_autocast_dtype(kAutocastDevices[i], devices_[i].type);
  }
  at::autocast::set_autocast_cache_enabled(cache_);
}

AutocastStateGuard::AutocastStateGuard(const AutocastState& state) {
  at::autocast::increment_nesting();
  at::autocast::clear_cache();
  state.restore();
}

AutocastStateGuard::~AutocastStateGuard() {
  at::autocast::decrement_nesting();
  at::autocast::clear_cache();
  before_.restore();
}

}  // namespace yoke
