#include "cli/torch/hugging_face.h"

#include <algorithm>
#include <charconv>

#include "yoke/config/changes.h"

namespace yoke::cli {
namespace {

const torch::Tensor* find(const std::vector<optim::NamedTensor>& weights, const std::string& name) {
  auto found = std::ranges::find(weights, name, &optim::NamedTensor::first);
  return found == weights.end() ? nullptr : &found->second;
}

int64_t blocks(const std::vector<optim::NamedTensor>& weights) {
  int64_t count = 0;
  while (find(weights, fmt::format("h.{}.ln_1.weight", count)) != nullptr) ++count;
  return count;
}

double number(const std::map<std::string, std::string>& values, const std::string& key, double otherwise) {
  auto found = values.find(key);
  double value = otherwise;
  if (found != values.end())
    std::from_chars(found->second.data(), found->second.data() + found->second.size(), value);
  return value;
}

// The one size that the weights do not determine. Published models have heads of 64.
int64_t heads(const std::map<std::string, std::string>& values, int64_t width) {
  if (auto given = static_cast<int64_t>(number(values, "model.heads", 0)); given > 0) return given;
  auto size = values.find("model.size");
  return size != values.end() && size->second.size() > 2 ? width / 64 : 12;
}

}  // namespace

std::optional<nlohmann::json> hugging_face_config(const std::vector<optim::NamedTensor>& weights,
                                                  const std::string& configuration) {
  const auto values = config::values_of(configuration);
  auto name = values.find("model.name");
  if (name == values.end() || name->second != "\"gpt2\"") return std::nullopt;
  const torch::Tensor *tokens = find(weights, "wte.weight"), *positions = find(weights, "wpe.weight");
  if (tokens == nullptr || positions == nullptr) return std::nullopt;
  const double given = number(values, "model.dropout", -1), dropout = given < 0 ? 0 : given;
  const int64_t last_token = tokens->size(0) - 1;
  return nlohmann::json{{"model_type", "gpt2"},
                        {"architectures", {"GPT2LMHeadModel"}},
                        {"activation_function", "gelu_new"},
                        {"n_layer", blocks(weights)},
                        {"n_head", heads(values, tokens->size(1))},
                        {"n_embd", tokens->size(1)},
                        {"n_positions", positions->size(0)},
                        {"n_ctx", positions->size(0)},
                        {"vocab_size", tokens->size(0)},
                        {"layer_norm_epsilon", 1e-5},
                        {"embd_pdrop", dropout},
                        {"attn_pdrop", dropout},
                        {"resid_pdrop", dropout},
                        {"bos_token_id", last_token},
                        {"eos_token_id", last_token},
                        {"tie_word_embeddings", true}};
}

}  // namespace yoke::cli
