#include "yoke/engine/parameter_hash.h"

#include <fmt/core.h>

#include <memory>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "yoke/base/error.h"

namespace yoke::engine {

std::string parameter_hash(const torch::nn::Module& module) {
  std::vector<std::pair<std::string, torch::Tensor>> tensors;
  for (const auto& item : module.named_parameters()) tensors.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) tensors.emplace_back(item.key(), item.value());
  return parameter_hash(tensors);
}

std::string parameter_hash(const std::vector<std::pair<std::string, torch::Tensor>>& tensors) {
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
  YOKE_CHECK(state != nullptr && XXH3_128bits_reset(state.get()) == XXH_OK, "no hash state");
  auto add = [&](const std::string& name, const torch::Tensor& tensor) {
    torch::Tensor bytes = tensor.detach().cpu().contiguous();
    std::string label = fmt::format("{}:{};", name, bytes.numel());
    XXH3_128bits_update(state.get(), label.data(), label.size());
    XXH3_128bits_update(state.get(), bytes.data_ptr(), bytes.nbytes());
  };
  for (const auto& [name, tensor] : tensors) add(name, tensor);
  XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace yoke::engine
