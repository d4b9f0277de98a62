// [model]: which model, and its sizes. Keys that a model does not use must keep their defaults.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/config/fields.h"

namespace yoke::models {

struct ModelOptions {
  std::string name = "lenet";
  // 0 or empty: the model's own default.
  int64_t classes = 0;
  int64_t image_size = 0;
  std::vector<int64_t> sizes = {};  // mlp
  std::string size = {};            // gpt2: "124m" "355m" "774m" "1558m"
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t width = 0;
  int64_t vocabulary = 0;
  int64_t positions = 0;
  double dropout = -1;   // -1: the model's default
  int64_t frames = 0;    // s2vt
  int64_t features = 0;  // s2vt, sparse_lr
  int64_t words = 0;     // s2vt

  bool operator==(const ModelOptions&) const = default;
};

// The names that model.name accepts: built-in models, then registered ones.
std::vector<std::string> model_names();

inline void describe(config::Fields& f, ModelOptions& o) {
  f.choice("name", o.name, model_names(), "name of the model");
  f.integer("classes", o.classes, "image models: number of classes; 0: the model's default (10 or 1000)");
  f.integer("image_size", o.image_size, "image models: input height and width; 0: the model's default");
  f.integers("sizes", o.sizes, "mlp: layer widths, input first; empty: [784, 256, 10]");
  f.choice("size", o.size, {"", "124m", "355m", "774m", "1558m"},
           "gpt2: published size; sets layers, heads and width");
  f.integer("layers", o.layers, "gpt2: number of blocks");
  f.integer("heads", o.heads, "gpt2: number of attention heads");
  f.integer("width", o.width, "gpt2, s2vt: hidden size");
  f.integer("vocabulary", o.vocabulary, "gpt2, s2vt: vocabulary size");
  f.integer("positions", o.positions, "gpt2: maximum sequence length");
  f.number("dropout", o.dropout, "dropout probability; -1: the model's default", -1, 0.999);
  f.integer("frames", o.frames, "s2vt: frames per video");
  f.integer("features", o.features, "s2vt: features per frame; sparse_lr: number of features");
  f.integer("words", o.words, "s2vt: words per caption");
}

}  // namespace yoke::models
