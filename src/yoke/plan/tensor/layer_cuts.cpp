#include "yoke/plan/tensor/layer_cuts.h"

#include <algorithm>
#include <optional>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::plan {
namespace {

using Kind = TensorLayer::Kind;

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::kLinear:
      return "a linear layer";
    case Kind::kConv:
      return "a convolution";
    case Kind::kEmbedding:
      return "an embedding";
    case Kind::kBatchNorm:
      return "a BatchNorm";
    case Kind::kLayerNorm:
      return "a LayerNorm";
  }
  return "a layer";
}

bool fits(Kind kind, TensorCut cut) {
  switch (cut) {
    case TensorCut::kReplicated:
      return true;
    case TensorCut::kColumns:
    case TensorCut::kRows:
      return kind == Kind::kLinear;
    case TensorCut::kChannelsOut:
      return kind == Kind::kConv || kind == Kind::kBatchNorm;
    case TensorCut::kChannelsIn:
    case TensorCut::kChannelsGrouped:
      return kind == Kind::kConv;
    case TensorCut::kVocabulary:
      return kind == Kind::kEmbedding || kind == Kind::kLinear;
  }
  return false;
}

// The rule for each layer; nullptr: none.
std::vector<const TensorRule*> match_rules(const TensorPlan& plan, const std::vector<TensorLayer>& layers) {
  std::vector<const TensorRule*> found(layers.size(), nullptr);
  for (const TensorRule& rule : plan.rules) {
    bool any = false;
    for (size_t i = 0; i < layers.size(); ++i) {
      const TensorLayer& layer = layers[i];
      if (!matches(rule.pattern, layer.name)) continue;
      any = true;
      bool exact = rule.pattern == layer.name;
      const TensorRule* before = found[i];
      if (before != nullptr && before->pattern == layer.name) continue;
      if (before != nullptr && !exact && !(before->how == rule.how))
        throw ConfigError(
            "tensor plan: \"{}\" says {} for layer '{}', and \"{}\" says {}. Hint: name the layer itself.",
            before->pattern, to_string(before->how), layer.name, rule.pattern, to_string(rule.how));
      if (!fits(layer.kind, rule.how.cut))
        throw ConfigError("tensor plan: \"{}\" = \"{}\", but '{}' is {}", rule.pattern, to_string(rule.how),
                          layer.name, kind_name(layer.kind));
      found[i] = &rule;
    }
    if (any) continue;
    std::vector<std::string> names;
    for (const TensorLayer& layer : layers) names.push_back(layer.name);
    std::string near = nearest_name(rule.pattern, names);
    if (near.empty() && !names.empty()) near = names.front();
    throw ConfigError("tensor plan: \"{}\" names no layer of this model.{}", rule.pattern,
                      near.empty() ? "" : fmt::format(" Hint: its layers have names as \"{}\".", near));
  }
  return found;
}

// Walks the layers in order and tracks whether activations are whole or sliced.
class Cutter {
 public:
  Cutter(const TensorPlan& plan, int ranks) : plan_(plan), ranks_(ranks) {}

  void take(const TensorLayer& layer, const TensorRule* rule) {
    if (rule == nullptr) {
      follow(layer);
      return;
    }
    switch (rule->how.cut) {
      case TensorCut::kReplicated:
        return;
      case TensorCut::kVocabulary:
        return add(layer, rule->how, layer.kind == Kind::kEmbedding ? layer.in : layer.out, "rows");
      case TensorCut::kColumns:
      case TensorCut::kChannelsOut:
        return layer.kind == Kind::kBatchNorm ? follow(layer) : columns(layer, rule->how);
      case TensorCut::kChannelsGrouped:
        return grouped(layer, rule->how);
      case TensorCut::kRows:
      case TensorCut::kChannelsIn:
        return rows(layer, rule->how);
    }
  }

  std::vector<LayerCut> finish() {
    if (open_)
      throw ConfigError(
          "tensor plan: '{}' is cut by {} and no layer after it takes its slices. Hint: cut the layer that "
          "uses its output by rows (convolutions: channels_in).",
          open_->layer.name, to_string(open_->how));
    return std::move(cuts_);
  }

 private:
  struct Open {
    TensorLayer layer;
    TensorHow how;
    int64_t units;
  };

  void columns(const TensorLayer& layer, const TensorHow& how) {
    if (how.gathered && !open_) no_slices(layer, how);
    // Queries, keys and values may be three layers with the same input.
    if (open_ && !how.gathered && layer.in != open_->layer.in)
      throw ConfigError(
          "tensor plan: '{}' is cut by {}, and so is '{}' behind it, which takes {} features. Hint: cut it "
          "by rows, or {}:gathered.",
          open_->layer.name, to_string(open_->how), layer.name, layer.in, to_string(how));
    int64_t units = layer.out;
    int64_t blocks = 1;
    if (how.heads) {
      units = how.head_count != 0 ? how.head_count : plan_.heads;
      if (units == 0)
        throw ConfigError(
            "tensor plan: '{}' = \"columns:heads\" does not say how many heads there are. Hint: "
            "columns:heads=12.",
            layer.name);
      blocks = layer.out == 3 * layer.in ? 3 : 1;
      if (layer.out % (blocks * units) != 0)
        throw ConfigError("tensor plan: '{}' has {} outputs, which are no {} heads", layer.name, layer.out,
                          units);
    }
    if (open_ && !how.gathered && open_->units != units)
      throw ConfigError("tensor plan: '{}' is cut into {} parts and '{}' beside it into {}",
                        open_->layer.name, open_->units, layer.name, units);
    int64_t input_units = how.gathered ? open_->units : 0;
    add(layer, how, units, how.heads ? "heads" : layer.kind == Kind::kConv ? "channels" : "columns");
    cuts_.back().blocks = blocks;
    cuts_.back().input_units = input_units;
    open_ = Open{layer, how, units};
  }

  void rows(const TensorLayer& layer, const TensorHow& how) {
    if (!open_) no_slices(layer, how);
    if (layer.in % open_->units != 0)
      throw ConfigError("tensor plan: '{}' takes {} features, which are not the {} slices of '{}'",
                        layer.name, layer.in, open_->units, open_->layer.name);
    if (layer.groups != 1)
      throw ConfigError("tensor plan: '{}' has {} groups. Hint: channels_grouped.", layer.name, layer.groups);
    add(layer, how, open_->units, "slices");
    open_.reset();
  }

  void grouped(const TensorLayer& layer, const TensorHow& how) {
    if (!open_) no_slices(layer, how);
    if (layer.groups % ranks_ != 0 || open_->units % ranks_ != 0)
      throw ConfigError("parallel.tensor = {}: '{}' has {} groups of channels, which do not divide by it",
                        ranks_, layer.name, layer.groups);
    add(layer, how, layer.out, "channels");
    open_ = Open{layer, how, layer.out};
  }

  // A BatchNorm of sliced channels.
  void follow(const TensorLayer& layer) {
    if (!open_ || layer.out != open_->layer.out) return;
    if (layer.kind == Kind::kLayerNorm)
      throw ConfigError(
          "tensor plan: LayerNorm '{}' needs all outputs of '{}', which is cut by {}. Hint: end the pair "
          "before it.",
          layer.name, open_->layer.name, to_string(open_->how));
    if (layer.kind == Kind::kBatchNorm)
      add(layer, {.cut = TensorCut::kChannelsOut}, open_->units, "channels");
  }

  void add(const TensorLayer& layer, const TensorHow& how, int64_t units, const char* what) {
    if (units < ranks_)
      throw ConfigError("parallel.tensor = {}: layer '{}' has {} {}. Hint: 1 to {} fit it.", ranks_,
                        layer.name, units, what, units);
    cuts_.push_back({.layer = layer.name, .cut = how.cut, .gathered = how.gathered, .units = units});
  }

  [[noreturn]] void no_slices(const TensorLayer& layer, const TensorHow& how) const {
    throw ConfigError(
        "tensor plan: '{}' = \"{}\" takes slices, and no layer before it leaves any. Hint: cut the layer "
        "before it by {}.",
        layer.name, to_string(how), layer.kind == Kind::kConv ? "channels_out" : "columns");
  }

  const TensorPlan& plan_;
  int ranks_;
  std::optional<Open> open_;
  std::vector<LayerCut> cuts_;
};

}  // namespace

CutRange cut_part(int64_t count, int ranks, int rank) {
  return {count * rank / ranks, count * (rank + 1) / ranks};
}

std::vector<CutRange> ranges_of(const LayerCut& cut, int64_t size, int ranks, int rank) {
  YOKE_CHECK(size % (cut.blocks * cut.units) == 0, "{} elements in {} x {} units", size, cut.blocks,
             cut.units);
  int64_t block = size / cut.blocks, unit = block / cut.units;
  CutRange part = cut_part(cut.units, ranks, rank);
  std::vector<CutRange> ranges;
  for (int64_t b = 0; b < cut.blocks; ++b)
    ranges.push_back({b * block + part.begin * unit, b * block + part.end * unit});
  return ranges;
}

std::vector<LayerCut> cut_layers(const TensorPlan& plan, const std::vector<TensorLayer>& layers, int ranks) {
  std::vector<const TensorRule*> rules = match_rules(plan, layers);
  Cutter cutter(plan, ranks);
  for (size_t i = 0; i < layers.size(); ++i) cutter.take(layers[i], rules[i]);
  return cutter.finish();
}

}  // namespace yoke::plan
