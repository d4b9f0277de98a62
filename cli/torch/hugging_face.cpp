#include "cli/torch/hugging_face.h"

#include <algorithm>
#include <charconv>

#include "yoke/base/error.h"
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

// Keys of config.json that change what is computed, with the only value that models/gpt2 has.
const nlohmann::json& expected() {
  static const nlohmann::json values = {
      {"model_type", "gpt2"},        {"layer_norm_epsilon", 1e-5},
      {"n_inner", nullptr},          {"scale_attn_weights", true},
      {"tie_word_embeddings", true}, {"scale_attn_by_inverse_layer_idx", false},
      {"add_cross_attention", false}};
  return values;
}

void check_variant(const nlohmann::json& config, const std::string& file) {
  if (!config.contains("model_type"))
    throw ConfigError("{}: has no model_type. Is it of transformers?", file);
  for (const auto& [key, only] : expected().items()) {
    if (!config.contains(key) || config[key] == only) continue;
    throw ConfigError("{}: {} = {}; only {} is supported.", file, key, config[key].dump(), only.dump());
  }
  const nlohmann::json activation = config.value("activation_function", nlohmann::json("gelu_new"));
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh")
    throw ConfigError("{}: activation_function = {}; only gelu_new is supported.", file, activation.dump());
}

// The tensors of the optimizer's state that stand for weights: "master/conv1.weight", by their names there.
std::map<std::string, torch::Tensor> state_of_kind(const checkpoint::State& state, const std::string& kind) {
  std::map<std::string, torch::Tensor> found;
  for (const auto& [name, tensor] : state.optimizer)
    if (name.starts_with(kind)) found[name.substr(kind.size())] = tensor;
  return found;
}

}  // namespace

models::ModelOptions gpt2_options(const nlohmann::json& config, const std::string& file) {
  if (!config.is_object()) throw ConfigError("{}: is not a JSON object.", file);
  check_variant(config, file);
  models::ModelOptions options;
  options.name = "gpt2";
  auto size = [&](const char* key, int64_t otherwise) {
    const nlohmann::json value = config.value(key, nlohmann::json(otherwise));
    if (!value.is_number_integer() || value < 1 || value > int64_t{1} << 30)
      throw ConfigError("{}: {} = {}; expected an integer above 0.", file, key, value.dump());
    return value.get<int64_t>();
  };
  options.layers = size("n_layer", 12);
  options.heads = size("n_head", 12);
  options.width = size("n_embd", 768);
  options.vocabulary = size("vocab_size", 50257);
  options.positions = size("n_positions", 1024);
  return options;
}

std::vector<optim::NamedTensor> published_weights(const checkpoint::State& state, bool raw) {
  std::map<std::string, torch::Tensor> masters = state_of_kind(state, "ema/");
  if (raw || masters.empty()) masters = state_of_kind(state, "master/");
  std::vector<optim::NamedTensor> weights = state.model;
  for (auto& [name, tensor] : weights) {
    if (auto found = masters.find(name); found != masters.end()) tensor = found->second;
  }
  return weights;
}

std::filesystem::path run_of(const checkpoint::Loaded& loaded) {
  return std::filesystem::absolute(loaded.path).lexically_normal().parent_path().parent_path();
}

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
