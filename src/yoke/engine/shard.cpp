#include "yoke/engine/shard.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

#include "yoke/base/random.h"

namespace yoke::engine {
namespace {

constexpr uint64_t kLoaderOrder = 0x6c6f61646572;  // "loader"

}  // namespace

OrderSeed::OrderSeed(uint64_t seed, int64_t epoch) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard lock(generator.mutex());
  before_ = generator.get_state();
  generator.set_current_seed(derive_seed(seed, kLoaderOrder, static_cast<uint64_t>(epoch)));
}

OrderSeed::~OrderSeed() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard lock(generator.mutex());
  generator.set_state(before_);
}

}  // namespace yoke::engine
