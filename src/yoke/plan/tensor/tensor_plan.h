// Which layers of a model are split over the ranks of the tensor axis, and how: plain data, from a preset or
// a TOML file.
//
//   "h.*.attn.c_attn" = "columns:heads"      # outputs split, whole heads together
//   "h.*.attn.c_proj" = "rows"               # inputs split, outputs summed over the ranks
//   "features.0"      = "channels_out"       # the same pair for convolutions
//   "features.3"      = "channels_in"
//   "wte"             = "vocabulary"         # rows of an embedding, or outputs of a language model's head
//
// `*` matches any characters except a dot. Layers that match no pattern are replicated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yoke::plan {

enum class TensorCut : uint8_t {
  kReplicated,
  kColumns,          // of the output; its consumer must be split by rows
  kRows,             // of the input, which arrives in slices; the output is summed over the ranks
  kChannelsOut,      // columns of a convolution; of a BatchNorm: its channels
  kChannelsIn,       // rows of a convolution
  kChannelsGrouped,  // grouped convolution: slices in, slices out, no communication
  kVocabulary,
};

struct TensorHow {
  TensorCut cut = TensorCut::kReplicated;
  bool heads = false;      // columns in whole attention heads
  int64_t head_count = 0;  // 0: as in the plan
  bool gathered = false;   // columns, channels_out: the input arrives in slices and is gathered first
  bool operator==(const TensorHow&) const = default;
};

struct TensorRule {
  std::string pattern;
  TensorHow how;
  bool operator==(const TensorRule&) const = default;
};

struct TensorPlan {
  std::vector<TensorRule> rules;
  int64_t heads = 0;  // of the model's attention layers; 0: unknown
  bool operator==(const TensorPlan&) const = default;
};

// "columns", "columns:heads", "columns:heads=12", "columns:gathered", "rows", … Throws ConfigError that lists
// what is accepted.
TensorHow parse_tensor_how(const std::string& text);
std::string to_string(const TensorHow& how);

// TOML, one pattern per line, and `heads = 12` for the number of heads of `columns:heads`. `file` starts each
// error. Throws ConfigError with the line.
TensorPlan parse_tensor_plan(const std::string& text, const std::string& file = "tensor plan");
std::string to_string(const TensorPlan& plan);

bool matches(const std::string& pattern, const std::string& name);

}  // namespace yoke::plan
