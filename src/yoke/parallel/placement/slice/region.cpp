#include "yoke/parallel/placement/slice/region.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <mutex>

namespace yoke::parallel {
namespace {

thread_local std::shared_ptr<TensorAxis> current;
thread_local std::shared_ptr<TensorAxis> of_sequences;

uint64_t mix(uint64_t seed, int rank) {
  uint64_t x = seed + 0x9e3779b97f4a7c15ULL * static_cast<uint64_t>(rank + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

uint64_t next_common_number() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard lock(generator.mutex());
  return at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
}

// Puts a generator back, whatever happens in between.
class SavedState {
 public:
  explicit SavedState(at::Generator generator) : generator_(std::move(generator)) {
    std::lock_guard lock(generator_.mutex());
    state_ = generator_.get_state();
  }
  ~SavedState() {
    std::lock_guard lock(generator_.mutex());
    generator_.set_state(state_);
  }
  SavedState(const SavedState&) = delete;
  SavedState& operator=(const SavedState&) = delete;

  void seed(uint64_t value) {
    std::lock_guard lock(generator_.mutex());
    generator_.set_current_seed(value);
  }

 private:
  at::Generator generator_;
  torch::Tensor state_;
};

}  // namespace

void set_region(std::shared_ptr<TensorAxis> axis) {
  current = std::move(axis);
}

const std::shared_ptr<TensorAxis>& region() {
  return current;
}

void set_sequence_axis(std::shared_ptr<TensorAxis> axis) {
  of_sequences = std::move(axis);
}

const std::shared_ptr<TensorAxis>& sequence_axis() {
  return of_sequences;
}

torch::Tensor with_random_of_rank(int rank, torch::Device device,
                                  const std::function<torch::Tensor()>& draw) {
  uint64_t seed = mix(next_common_number(), rank);
  at::Generator generator =
      device.is_cpu() ? at::detail::getDefaultCPUGenerator() : at::globalContext().defaultGenerator(device);
  SavedState common(generator);
  common.seed(seed);
  return draw();
}

}  // namespace yoke::parallel
