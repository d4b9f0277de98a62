#include "yoke/checkpoint/random_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <cstring>
#include <mutex>

#include "yoke/base/error.h"
#include "yoke/base/log.h"

namespace yoke::checkpoint {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

std::string to_hex(const torch::Tensor& bytes) {
  std::string text;
  const auto* data = bytes.const_data_ptr<uint8_t>();
  for (int64_t i = 0; i < bytes.numel(); ++i) {
    text += kDigits[data[i] >> 4];
    text += kDigits[data[i] & 15];
  }
  return text;
}

torch::Tensor from_hex(const std::string& text, const char* which) {
  auto bytes = at::empty({static_cast<int64_t>(text.size() / 2)}, at::kByte);
  auto* data = bytes.mutable_data_ptr<uint8_t>();
  bool good = text.size() % 2 == 0;
  for (size_t i = 0; good && i < text.size(); ++i) {
    size_t digit = kDigits.find(text[i]);
    good = digit != std::string_view::npos;
    data[i / 2] = static_cast<uint8_t>(i % 2 == 0 ? digit << 4 : data[i / 2] | digit);
  }
  if (!good)
    throw CheckpointError("random state \"{}\": not hexadecimal. The checkpoint is unusable.", which);
  return bytes;
}

std::string get(at::Generator generator) {
  std::lock_guard lock(generator.mutex());
  return to_hex(generator.get_state());
}

void set(at::Generator generator, const nlohmann::json& state, const char* which) {
  auto found = state.find(which);
  if (found == state.end()) {
    log::warn(
        "the checkpoint holds no random state of \"{}\": its random numbers differ from those of an "
        "uninterrupted run",
        which);
    return;
  }
  if (!found->is_string())
    throw CheckpointError("random state \"{}\": not a string. The checkpoint is unusable.", which);
  torch::Tensor bytes = from_hex(found->get<std::string>(), which);
  try {
    std::lock_guard lock(generator.mutex());
    generator.set_state(bytes);
  } catch (const c10::Error& error) {
    throw CheckpointError("random state \"{}\" is not valid for this LibTorch: {}", which,
                          error.what_without_backtrace());
  }
}

}  // namespace

nlohmann::json random_state(torch::Device device) {
  nlohmann::json state = {{"cpu", get(at::detail::getDefaultCPUGenerator())}};
  if (device.is_cuda()) state["cuda"] = get(at::globalContext().defaultGenerator(device));
  return state;
}

void set_random_state(const nlohmann::json& state, torch::Device device) {
  if (!state.is_object()) throw CheckpointError("random state: not an object. The checkpoint is unusable.");
  set(at::detail::getDefaultCPUGenerator(), state, "cpu");
  if (device.is_cuda()) set(at::globalContext().defaultGenerator(device), state, "cuda");
}

}  // namespace yoke::checkpoint
