#include "yoke/checkpoint/weights.h"

#include <ATen/ATen.h>

#include <array>
#include <unordered_map>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/checkpoint/format/folder.h"
#include "yoke/checkpoint/format/sharded_index.h"
#include "yoke/checkpoint/pieces.h"

namespace yoke::checkpoint {
namespace {

namespace fs = std::filesystem;
using ByName = std::unordered_map<std::string, torch::Tensor>;

constexpr std::string_view kPrefix = "transformer.";
constexpr std::string_view kOutputLayer = "lm_head.weight";
constexpr std::string_view kEmbedding = "wte.weight";

bool is_causal_mask(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

bool is_batch_counter(std::string_view name) {
  return name.ends_with("num_batches_tracked");
}

// The model's name for `name`, or "".
std::string own_name(const std::string& name, const ByName& own) {
  if (own.contains(name)) return name;
  if (name.starts_with(kPrefix) && own.contains(name.substr(kPrefix.size())))
    return name.substr(kPrefix.size());
  if (own.contains(std::string(kPrefix) + name)) return std::string(kPrefix) + name;
  return "";
}

// The configuration key that determines this tensor's shape or presence.
std::string_view key_for(std::string_view name) {
  struct Rule {
    std::string_view part;
    std::string_view key;
  };
  static constexpr std::array kRules{
      Rule{"wpe.", "model.positions"},
      Rule{"wte.", "model.vocabulary or model.width"},
      Rule{"lm_head", "model.vocabulary"},
      Rule{".attn.", "model.width or model.layers"},
      Rule{".mlp.", "model.width or model.layers"},
      Rule{"ln_", "model.width or model.layers"},
      Rule{"fc.", "model.classes"},
      Rule{"fc3.", "model.classes"},
      Rule{"classifier.", "model.classes or model.image_size"},
      Rule{"AuxLogits", "model.name and model.classes"},
  };
  for (const Rule& rule : kRules)
    if (name.find(rule.part) != std::string_view::npos) return rule.key;
  return "model.name and its sizes";
}

// Counts mismatches; the first is described in full.
class Misfits {
 public:
  void add(std::string_view name, const std::string& text) {
    if (count_++ > 0) return;
    first_ = text;
    key_ = key_for(name);
  }
  void throw_if_any(const std::string& what) const {
    if (count_ == 0) return;
    std::string others = count_ == 1 ? "" : fmt::format(" ({} more tensors do not fit)", count_ - 1);
    throw CheckpointError("{}: the weights belong to another model: {}{}. Check {}.", what, first_, others,
                          key_);
  }

 private:
  int64_t count_ = 0;
  std::string first_, key_;
};

bool can_cast(const torch::Tensor& from, const torch::Tensor& to) {
  return from.scalar_type() == to.scalar_type() || (from.is_floating_point() && to.is_floating_point());
}

// A file may contain the tied output layer a second time; if it is identical, it can be skipped.
bool repeats_embedding(const torch::Tensor& tensor, const ByName& source) {
  for (const std::string& name : {std::string(kEmbedding), std::string(kPrefix) + std::string(kEmbedding)}) {
    auto found = source.find(name);
    if (found != source.end())
      return found->second.sizes() == tensor.sizes() && at::equal(found->second, tensor);
  }
  return true;
}

bool may_ignore(const std::string& name, const torch::Tensor& tensor, const ByName& source) {
  return is_causal_mask(name) || (name == kOutputLayer && repeats_embedding(tensor, source));
}

struct Match {
  ByName from, to;
  ByName chosen;  // our own name -> the source's tensor
  CopiedWeights result;
  Misfits misfits;
};

// Finds the destination of one tensor of the source.
void place(const std::string& name, const torch::Tensor& tensor, Match& match) {
  std::string target = own_name(name, match.to);
  if (target.empty()) {
    if (may_ignore(name, tensor, match.from)) return match.result.ignored.push_back(name);
    return match.misfits.add(name, fmt::format("it contains \"{}\" {}, which is not in this model", name,
                                               describe_tensor(tensor)));
  }
  const torch::Tensor& own = match.to.at(target);
  if (!match.chosen.emplace(target, tensor).second) {
    match.misfits.add(
        name, fmt::format("it contains \"{}\" twice, with and without the prefix \"{}\"", target, kPrefix));
  } else if (tensor.sizes() != own.sizes() || !can_cast(tensor, own)) {
    match.misfits.add(name, fmt::format("\"{}\" is {} in the file and {} in this model", name,
                                        describe_tensor(tensor), describe_tensor(own)));
  }
}

bool is_tied_output(const std::string& name, const torch::Tensor& tensor, const ByName& own) {
  if (!name.ends_with(kOutputLayer)) return false;
  std::string embedding = own_name(std::string(kEmbedding), own);
  return !embedding.empty() && own.at(embedding).is_alias_of(tensor);
}

// One of our own tensors that the source does not have.
void account_for_missing(const std::string& name, const torch::Tensor& tensor, Match& match) {
  if (is_batch_counter(name) || is_tied_output(name, tensor, match.to))
    return match.result.kept.push_back(name);
  match.misfits.add(name, fmt::format("\"{}\" {} is not in it", name, describe_tensor(tensor)));
}

std::vector<NamedTensor> load_sharded(const fs::path& index_path) {
  auto index = format::parse_sharded_index(read_file(index_path), index_path.string());
  std::vector<NamedTensor> tensors;
  for (const std::string& file : index.files()) {
    for (NamedTensor& tensor : load_tensors(index_path.parent_path() / file).tensors) {
      auto place = index.weight_map.find(tensor.first);
      if (place == index.weight_map.end() || place->second != file) {
        throw ConfigError("{}: {} contains \"{}\", which the index does not list for this file.",
                          index_path.string(), file, tensor.first);
      }
      tensors.push_back(std::move(tensor));
    }
  }
  if (tensors.size() != index.weight_map.size()) {
    throw ConfigError("{}: lists {} tensors, but its files contain {}.", index_path.string(),
                      index.weight_map.size(), tensors.size());
  }
  return tensors;
}

std::vector<NamedTensor> load_folder(const fs::path& folder) {
  if (!fs::exists(folder / format::kCommittedName)) {
    if (fs::exists(folder / "model.safetensors")) return load_tensors(folder / "model.safetensors").tensors;
    if (fs::exists(folder / "model.safetensors.index.json"))
      return load_sharded(folder / "model.safetensors.index.json");
  }
  format::Choice choice = format::newest_good(folder);
  if (choice.newest)
    return join_pieces(load_files(choice.newest->path, format::read_manifest(choice.newest->path), "model"),
                       {}, choice.newest->path.string());
  if (choice.passed_over.empty()) {
    throw ConfigError(
        "{}: no model.safetensors, no model.safetensors.index.json and no checkpoint in this folder.",
        folder.string());
  }
  throw CheckpointError("{}: {}.", choice.passed_over[0].path.string(), choice.passed_over[0].problem);
}

}  // namespace

std::vector<NamedTensor> load_weights(const fs::path& path) {
  if (fs::is_directory(path)) return load_folder(path);
  if (path.extension() == ".json") return load_sharded(path);
  return load_tensors(path).tensors;
}

CopiedWeights copy_weights(const std::vector<NamedTensor>& source, const std::vector<NamedTensor>& own,
                           const std::string& what) {
  Match match{ByName(source.begin(), source.end()), ByName(own.begin(), own.end()), {}, {}, {}};
  for (const auto& [name, tensor] : source) place(name, tensor, match);
  for (const auto& [name, tensor] : own) {
    if (!match.chosen.contains(name)) account_for_missing(name, tensor, match);
  }
  match.misfits.throw_if_any(what);
  at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : match.chosen) match.to.at(name).copy_(tensor);
  match.result.copied = static_cast<int64_t>(match.chosen.size());
  return std::move(match.result);
}

}  // namespace yoke::checkpoint
